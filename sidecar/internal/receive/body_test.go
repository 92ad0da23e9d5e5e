package receive_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/test/require"
)

// A client that sends a whole body that is too large is told that it is too large.
func TestTooLargeBodyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	const size = 24 << 20
	for name, c := range map[string]struct {
		headers string
		body    io.Reader
	}{
		"JSON":  {fmt.Sprintf("Content-Length: %d\r\n", size), strings.NewReader(strings.Repeat("x", size))},
		"bytes": {fmt.Sprintf("Content-Type: a/b\r\nContent-Length: %d\r\n", size), strings.NewReader(strings.Repeat("x", size))},
		"lines": {fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n", size),
			strings.NewReader(strings.Repeat("x", size))},
		"in chunks": {"Transfer-Encoding: chunked\r\n",
			strings.NewReader(strings.Repeat("100000\r\n"+strings.Repeat("x", 1<<20)+"\r\n", size>>20) + "0\r\n\r\n")},
		"told first": {fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n", size), strings.NewReader("")},
	} {
		if status, text := gatewaytest.RawPost(t, s, c.headers, c.body); status != 413 || !strings.Contains(text, `"code":"payload_too_large"`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// A client that stops in the middle of a body does not hold up a stop, and does not hold up the
// sidecar for ever.
func TestBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	const headers = "Content-Type: application/x-ndjson\r\nContent-Length: 8388608\r\n"
	bounds := session.DefaultBounds()
	bounds.SlowClientTimeout = 50 * time.Millisecond
	s := gatewaytest.Start(t, gatewaytest.Setup{Bounds: &bounds})
	if status, text := gatewaytest.RawPost(t, s, headers, strings.NewReader("{")); status != 400 ||
		!strings.Contains(text, "nothing more came for 50ms") {
		t.Errorf("%d %s", status, text)
	}
	s = gatewaytest.Start(t, gatewaytest.Setup{})
	c, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(gatewaytest.Patience))
	answers := bufio.NewReader(c)
	for i, status := range []int{100, 503} { // 100: the body is read
		text := "{"
		if i == 0 {
			text = "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n" + headers + "\r\n"
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if status == 503 {
			s.Stop()
		}
		res, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		content, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != status || status == 503 && !strings.Contains(string(content), `"code":"store_unavailable"`) {
			t.Errorf("%s %s: %v", res.Status, content, err)
		}
	}
}

// The sidecar waits for a client that sends a body slowly. The connection stays usable.
func TestBodyThatComesSlowly(t *testing.T) {
	t.Parallel()
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	c, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(gatewaytest.Patience))
	answers := bufio.NewReader(c)
	for range 3 {
		for _, piece := range []string{"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n", "1", "2", "3"} {
			if _, err := io.WriteString(c, piece); err != nil {
				t.Fatal(err)
			}
		}
		res, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 201 {
			t.Fatalf("%s: %v", res.Status, err)
		}
	}
}
