package httpapi

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// A client that is not let in gets the answer of any other refusal once it has begun to ask, and
// not before, whatever it sends.
func TestRefusedConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bound := listen.NewBound(ln, 0, func(c net.Conn) {
		RefuseConn(c, &wire.Error{Code: wire.Overloaded, RetryAfter: 1500 * time.Millisecond, Msg: "too many"})
	})
	done := make(chan struct{})
	go func() { defer close(done); _, _ = bound.Accept() }()
	defer func() { bound.Close(); <-done }()
	silent, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer silent.Close()
	if early, err := io.ReadAll(silent); err != nil || len(early) > 0 {
		t.Errorf("before its request, a client is told %q, %v", early, err)
	}
	res, err := client(t).Post("http://"+ln.Addr().String(), "text/plain", strings.NewReader(strings.Repeat("x", 10_000)))
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if want := `{"code":"overloaded","error":"too many","retry_after_ms":1500}` + "\n"; err != nil ||
		res.StatusCode != http.StatusServiceUnavailable || string(body) != want || res.Header.Get("Retry-After") != "2" {
		t.Errorf("%s, %q, Retry-After %q, %v", res.Status, body, res.Header.Get("Retry-After"), err)
	}
}
