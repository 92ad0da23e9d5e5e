package ingest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// batchedItems makes an event of each CloudEvent in a JSON array. It refuses wrong ones one by one.
func batchedItems(topic string, h *head, content []byte, lim wire.Limits) ([]wire.PublishItem, *wire.Error) {
	if name := h.ofOneEvent(); name != "" {
		return nil, wire.Errorf(wire.BadRequest, "header %s is about one event: in a batch each has its own attributes", name)
	}
	var items []wire.PublishItem
	err := eachElement(content, "CloudEvents", lim, func(text json.RawMessage) *wire.Error {
		it := wire.PublishItem{Event: wire.Event{Topic: topic}}
		if bad := fillFromJSON(&it, text, lim); bad != nil {
			it = wire.PublishItem{Event: wire.Event{Topic: topic}, Err: bad}
		}
		items = append(items, it)
		return nil
	})
	return items, err
}

// eachElement calls f with each element of a JSON array, which may have as many as a batch. An
// error of f ends the loop. f may keep the text.
func eachElement(content []byte, what string, lim wire.Limits, f func(json.RawMessage) *wire.Error) *wire.Error {
	notJSON := func(err error) *wire.Error {
		return wire.Errorf(wire.BadJSON, "the batch is not JSON: %s", reason(err))
	}
	if !utf8.Valid(content) {
		return notJSON(errNotUTF8)
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	switch open, err := dec.Token(); {
	case err != nil:
		return notJSON(err)
	case open != json.Delim('['):
		return wire.Errorf(wire.BadRequest, "a batch must be a JSON array of %s", what)
	}
	for n := 0; dec.More(); n++ {
		if n == lim.BatchEvents {
			return errBatchTooLarge(lim)
		}
		var text json.RawMessage
		if err := dec.Decode(&text); err != nil {
			return notJSON(err)
		}
		if bad := f(text); bad != nil {
			return bad
		}
	}
	if _, err := dec.Token(); err != nil {
		return notJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return notJSON(errors.New("more text after the array"))
	}
	return nil
}

var errNotUTF8 = errors.New("it is not valid UTF-8")

// reason is a decoder's error in words. A text that ends too early has its own words.
func reason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the text ends too early"
	}
	return err.Error()
}

// fillFromJSON puts a CloudEvent in JSON into an event. Null members count as absent. Of members
// with the same name the last counts.
func fillFromJSON(it *wire.PublishItem, text []byte, lim wire.Limits) *wire.Error {
	if !utf8.Valid(text) {
		return wire.Errorf(wire.BadJSON, "the CloudEvent is not JSON: %v", errNotUTF8)
	}
	var members map[string]json.RawMessage
	var wrong *json.UnmarshalTypeError
	switch err := json.Unmarshal(text, &members); {
	case errors.As(err, &wrong), err == nil && members == nil:
		return wire.Errorf(wire.BadRequest, "a CloudEvent must be a JSON object")
	case err != nil:
		return wire.Errorf(wire.BadJSON, "the CloudEvent is not JSON: %s", reason(err))
	}
	data, data64 := members["data"], members["data_base64"]
	delete(members, "data")
	delete(members, "data_base64")
	a := make(attributes, len(members))
	for name, raw := range members {
		value, given, err := attributeOf(name, raw)
		if err != nil {
			return err
		}
		if given {
			a[name] = value
		}
	}
	of := parseContentType(a["datacontenttype"])
	if err := checkAttribute("datacontenttype", of.text); err != nil {
		return err
	}
	delete(a, "datacontenttype")
	if err := a.fill(it); err != nil {
		return err
	}
	if err := fillData(it, of, data, data64, lim); err != nil {
		return err
	}
	return checkItem(it, lim)
}

// isText reports whether an attribute's value must be a string. It is true for the attributes of
// the specification; extensions may have other types.
func isText(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema":
		return true
	}
	return false
}

// attributeOf is an attribute's JSON value as a string. An extension's boolean or whole number
// keeps its JSON text.
func attributeOf(name string, raw json.RawMessage) (value string, given bool, err *wire.Error) {
	switch c := raw[0]; {
	case c == 'n':
		return "", false, nil
	case c != '"' && isText(name):
		return "", false, wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s must be a string", name)
	case c == 't' || c == 'f':
		return string(raw), true, nil
	case c == '"':
		text, ok := textOf(raw)
		if !ok {
			return "", false, wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s holds a lone surrogate escape", refusal.Shorten(name))
		}
		return string(text), true, nil
	case c != '{' && c != '[' && !bytes.ContainsAny(raw, ".eE"):
		return string(raw), true, nil
	}
	return "", false, wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s must be a string, a boolean or a whole number",
		refusal.Shorten(name))
}

// fillData puts the data into an event. The member data is a JSON value or, if the content type is
// not JSON, a string with the text; the member data_base64 has bytes.
func fillData(it *wire.PublishItem, of contentType, data, data64 json.RawMessage, lim wire.Limits) *wire.Error {
	json64 := given(data64)
	switch {
	case json64 && given(data):
		return wire.Errorf(wire.BadRequest, "a CloudEvent has either data or data_base64, not both")
	case json64:
		content, err := base64Of(data64)
		if err != nil {
			return err
		}
		return setData(it, of, of.text != "" && of.isJSON(), content, lim)
	case of.isJSON():
		return setData(it, of, true, data, lim)
	case !given(data):
		return setData(it, of, false, nil, lim)
	case data[0] != '"':
		return wire.Errorf(wire.BadRequest, "data must be a string where datacontenttype is %q, or be in data_base64", refusal.Shorten(of.text))
	}
	text, ok := textOf(data)
	if !ok {
		return wire.Errorf(wire.BadRequest, "data holds a lone surrogate escape, which is no text of %q", refusal.Shorten(of.text))
	}
	return setData(it, of, false, text, lim)
}

// given reports whether a member has a value other than null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] != 'n' }

func base64Of(raw json.RawMessage) ([]byte, *wire.Error) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil, wire.Errorf(wire.BadRequest, "data_base64 must be a string")
	}
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "data_base64 is not standard base64 with padding: %v", err)
	}
	return content, nil
}

// textOf is the text of a JSON string that a decoder has read. ok is false if the string holds a
// lone surrogate escape, which stands for no character.
func textOf(raw []byte) (text []byte, ok bool) {
	tokens := codec.NewTokens(raw)
	if tokens.Next() != nil {
		return nil, false
	}
	return tokens.AppendText(nil)
}
