package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// binaryItemOf makes an event of a CloudEvent in binary mode: the ce- headers are its attributes,
// and the body is its data, of the request's content type.
func binaryItemOf(topic string, h http.Header, data []byte, lim wire.Limits) (it wire.PublishItem, err *wire.Error) {
	contentType, _, err := singleHeader(h, "Content-Type")
	if err != nil {
		return it, err
	}
	if err = fillFromHeaders(&it, topic, h, binaryBody, lim); err != nil {
		return it, err
	}
	a, err := binaryAttributes(h)
	if err != nil {
		return it, err
	}
	if stated, given := a["datacontenttype"]; given && stated != contentType {
		return it, wire.Errorf(wire.BadRequest, "header Ce-Datacontenttype is %q and Content-Type %q: a CloudEvent's type of data is the Content-Type", refusal.Shorten(stated), refusal.Shorten(contentType))
	}
	delete(a, "datacontenttype")
	if err = a.fill(&it); err != nil {
		return it, err
	}
	if mediaOf(contentType) == "application/x-www-form-urlencoded" {
		contentType = "" // curl's default type for every body
	}
	if err = setData(&it, contentType, isJSON(contentType), data, lim); err != nil {
		return it, err
	}
	return it, checkItem(&it, lim)
}

// binaryAttributes reads the ce- headers.
func binaryAttributes(h http.Header) (attributes, *wire.Error) {
	a := attributes{}
	for source := range h {
		name, ok := strings.CutPrefix(source, cePrefix)
		if !ok {
			continue
		}
		value, _, err := singleHeader(h, source)
		if err != nil {
			return nil, err
		}
		decoded, ok := decodeHeader(value)
		if !ok {
			return nil, wire.Errorf(wire.BadRequest, "header %s is %q, which is not percent-encoded UTF-8: a %% has two hex digits behind it, and a quote its closing one",
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
