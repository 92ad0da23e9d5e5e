package ingest

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// fillFromBinary puts a CloudEvent in binary mode into an event: the ce- headers are its attributes,
// and the body is its data, of the request's content type.
func fillFromBinary(it *wire.PublishItem, h *head, data []byte, lim wire.Limits) *wire.Error {
	a, bad := binaryAttributes(h.Header)
	if bad != nil {
		return bad
	}
	stated, given := a["datacontenttype"]
	if given && stated != h.contentType.text {
		return wire.Errorf(wire.BadRequest, "header Ce-Datacontenttype is %q and Content-Type %q: "+
			"a CloudEvent's type of data is the Content-Type",
			refusal.Shorten(stated), refusal.Shorten(h.contentType.text))
	}
	delete(a, "datacontenttype")
	if bad := a.fill(it); bad != nil {
		return bad
	}
	of := h.contentType
	if of.media == mediaForm {
		of = contentType{}
	}
	if bad := setData(it, of, of.isJSON(), data, lim); bad != nil {
		return bad
	}
	return checkItem(it, lim)
}

// binaryAttributes reads the ce- headers.
func binaryAttributes(h http.Header) (attributes, *wire.Error) {
	a := attributes{}
	for source := range h {
		name, ok := strings.CutPrefix(source, cePrefix)
		if !ok {
			continue
		}
		value, _, err := httpapi.SingleHeader(h, source)
		if err != nil {
			return nil, err
		}
		decoded, ok := decodeHeader(value)
		if !ok {
			return nil, wire.Errorf(wire.BadRequest, "header %s is %q, which is not percent-encoded UTF-8: "+
				"a %% has two hex digits behind it, and a quote its closing one",
				source, refusal.Shorten(value))
		}
		a[strings.ToLower(name)] = decoded
	}
	return a, nil
}

// decodeHeader decodes an attribute's value: it removes double quotes around the value, which older
// senders add, and then undoes one round of percent encoding.
func decodeHeader(value string) (string, bool) {
	value, ok := unquote(value)
	if !ok {
		return "", false
	}
	value, err := url.PathUnescape(value)
	return value, err == nil && utf8.ValidString(value)
}

// unquote removes the quotes and backslashes of a quoted-string of RFC 9110.
func unquote(value string) (string, bool) {
	if !strings.HasPrefix(value, `"`) {
		return value, true
	}
	var out strings.Builder
	for i := 1; i < len(value); i++ {
		switch value[i] {
		case '"':
			return out.String(), i == len(value)-1
		case '\\':
			if i++; i == len(value) {
				return "", false
			}
		}
		out.WriteByte(value[i])
	}
	return "", false
}
