package httpapi

import (
	"net/http"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// SingleHeader returns the value of a header that may occur once, in UTF-8.
func SingleHeader(h http.Header, name string) (value string, given bool, bad *wire.Error) {
	values := h[http.CanonicalHeaderKey(name)]
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", true, wire.Errorf(wire.BadRequest, "header %s is given %d times; give it once", name, len(values))
	case !utf8.ValidString(values[0]):
		return "", true, wire.Errorf(wire.BadRequest, "header %s is not valid UTF-8", name)
	}
	return values[0], true, nil
}
