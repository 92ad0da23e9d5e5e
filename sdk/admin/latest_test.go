package admin

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// An answer without positions at its end is an error.
func TestLatestThatBreaksOff(t *testing.T) {
	const one = `{"id":"a","ts":1,"topic":"t","partition":0,"seq":1,"key":"k","payload":1}` + "\n"
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer server.Close()
	h := &HTTP{AppURL: server.URL}
	defer h.CloseIdle()
	for _, c := range []struct {
		answer string
		err    error
	}{
		{one, ErrTruncated},
		{one + `{"positions":{"0":1}}`, ErrTruncated},
		{one + "{}\n", ErrTruncated},
		{one + `{"code":"store_unavailable","error":"away"}` + "\n", &wire.Error{Code: wire.StoreUnavailable}},
		{one + `{"positions":{"0":1}}` + "\n", nil},
	} {
		answer = c.answer
		n := 0
		positions, err := h.Latest(t.Context(), LatestQuery{Topic: "t"}, func(wire.Event) error { n++; return nil })
		if !errors.Is(err, c.err) || (positions != nil) != (c.err == nil) || n != 1 {
			t.Errorf("%q: %d events, %v, %v", answer, n, positions, err)
		}
	}
}
