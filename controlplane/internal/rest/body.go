package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	// Only senders that may change policies may send a document of many policies; other bodies are
	// small.
	maxBodyBytes   = 1 << 20
	maxApplyBytes  = policy.MaxDocumentBytes
	maxBodyNesting = 512
	// answerTimeout bounds the time in which a client reads an answer.
	answerTimeout = time.Minute
)

// readBody reads a request's body of up to a number of bytes, which must be one JSON value in
// UTF-8.
func readBody(w http.ResponseWriter, r *request, most int64) ([]byte, error) {
	if err := checkContentType(r.Request); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(counted{http.MaxBytesReader(w, r.Body, most), r.held})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, &wire.Error{Code: wire.Overloaded}):
		return nil, err
	case errors.As(err, &tooLarge):
		return nil, wire.Errorf(wire.PayloadTooLarge, "the body is larger than %d bytes, the most that your role may send here", most)
	case err != nil:
		return nil, wire.Errorf(wire.BadRequest, "the body could not be read to its end")
	}
	if kind, _ := coding.OfBody(r.Header); kind != coding.Identity {
		if body, err = decode(kind, body, most, r.held); err != nil {
			return nil, err
		}
	}
	var deep *codec.DepthError
	switch compact, err := codec.AppendCompact(nil, body, maxBodyNesting); {
	case errors.As(err, &deep):
		return nil, wire.Errorf(wire.BadRequest, "the body is %v", err)
	case err != nil:
		return nil, wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	default:
		return compact, nil
	}
}

// counted counts what is read of a body: three times, for the room that io.ReadAll makes, and for the text without spaces.
type counted struct {
	io.Reader
	held *budget.Held
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if full := c.held.TryTake(3 * n); full != nil {
		return n, full
	}
	return n, err
}

// decode is the text of a body that came compressed.
func decode(kind string, body []byte, most int64, held *budget.Held) (text []byte, err error) {
	err = coding.Decode(kind, bytes.NewReader(body), func(r io.Reader) error {
		text, err = io.ReadAll(counted{io.LimitReader(r, most+1), held})
		return err
	})
	switch {
	case errors.Is(err, &wire.Error{Code: wire.Overloaded}):
		return nil, err
	case err != nil:
		return nil, wire.Errorf(wire.BadRequest, "the body is not %s, as Content-Encoding says: %v", kind, err)
	case int64(len(text)) > most:
		return nil, wire.Errorf(wire.PayloadTooLarge, "the body is larger than %d bytes, the most that your role may send here", most)
	}
	return text, nil
}

// checkContentType refuses types that a web page may send without a preflight request. Programs may
// also leave the type out or send curl's default; browsers are recognised by Origin or
// Sec-Fetch-Site.
func checkContentType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(given)
	browser := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	switch {
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return nil
	case !browser && (given == "" || kind == "application/x-www-form-urlencoded"):
		return nil
	}
	return wire.Errorf(wire.BadRequest, "header Content-Type: %q is not application/json", given)
}

// members parses a JSON object. The errors are bad_request and name a member that is not in allowed
// or is given twice; null counts as absent.
func members(body []byte, allowed ...string) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, wire.Errorf(wire.BadRequest, "the body must be an object with %s", strings.Join(allowed, ", "))
	}
	out := make(map[string]json.RawMessage)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err // readBody has found it to be JSON
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		key, _ := name.(string)
		if !slices.Contains(allowed, key) {
			return nil, httpapi.UnknownMember(key, allowed)
		}
		if _, twice := out[key]; twice {
			return nil, wire.Errorf(wire.BadRequest, "field %q is given twice", key)
		}
		out[key] = value
	}
	for name, value := range out {
		if string(value) == "null" {
			delete(out, name)
		}
	}
	return out, nil
}

// flag returns a member that is true or false; absent is false.
func flag(from map[string]json.RawMessage, name string) (bool, error) {
	switch string(from[name]) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, wire.Errorf(wire.BadRequest, "field %q must be true or false", name)
}
