package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// retryAfter is the retry time in errors while the control plane is not ready.
const retryAfter = time.Second

// answer writes v as JSON, completely or not at all.
func (h *handler) answer(w http.ResponseWriter, r *request, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return fmt.Errorf("encode the answer to %s %s: %w", r.Method, r.URL.Path, err)
	}
	if err := r.held.TryTake(len(body)); err != nil {
		return err
	}
	return write(w, r, status, body)
}

func encode(v any) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return body.Bytes(), err
}

// minCompressed is the least size of an answer that is worth compressing.
const minCompressed = 1 << 10

// write writes an answer, whose body is counted, as long as the client reads it in time: compressed if the client takes
// that, and nothing but its status if the client has it already.
func write(w http.ResponseWriter, r *request, status int, body []byte) error {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Add("Vary", "Accept-Encoding")
	if status == http.StatusOK && (r.Method == http.MethodGet || r.Method == http.MethodHead) && header.Get("ETag") == "" {
		sum := sha256.Sum256(body)
		mine := `"` + hex.EncodeToString(sum[:12]) + `"`
		header.Set("ETag", "W/"+mine) // weak: it is the same for each coding
		has := func(t tag) bool { return t.opaque == mine }
		if tags, err := readTags(r.Header, "If-None-Match"); err == nil && (tags.star || slices.ContainsFunc(tags.list, has)) {
			header.Del("Content-Type")
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if how := coding.Negotiate(r.Header["Accept-Encoding"]); how != coding.Identity && len(body) >= minCompressed {
		body = compressed(how, body)
		if err := r.held.TryTake(len(body)); err != nil {
			return err
		}
		header.Set("Content-Encoding", how)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	// The deadline ends the wait for a client that does not read. A writer without deadlines, as in
	// tests, cannot block.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client went away
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{})
	return nil
}

func compressed(how string, body []byte) []byte {
	var out bytes.Buffer
	enc := coding.Get(how, &out)
	defer coding.Put(how, enc)
	_, _ = enc.Write(body) // a buffer takes all
	_ = enc.Close()
	return out.Bytes()
}

// fail answers with an error. An error outside the contract is a defect.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var told *wire.Error
	if !errors.As(err, &told) {
		err = fmt.Errorf("%w: %w", wire.Errorf(wire.Internal, "internal error; the control plane's log has the detail"), err)
	}
	httpapi.WriteError(w, r, err, h.Logger)
}
