package gatewaytest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Want makes a request, and checks its status and a part of the body.
func (s *Sidecar) Want(t *testing.T, status int, part, method, path, body string, headers ...string) string {
	t.Helper()
	res, text := s.Do(t, method, path, body, headers...)
	if res.StatusCode != status || !strings.Contains(text, part) {
		t.Errorf("%s %s: %s %s; want %d and %q", method, path, res.Status, text, status, part)
	}
	return text
}

// Paths of a topic, its dead letters and a group, and a pull of one event.
const (
	DeadOrders = "/v1/topics/orders.dlq"
	Orders     = "/v1/topics/orders"
	Billing    = Orders + "/groups/billing"
	PullOne    = `{"max":1,"wait_ms":0,"opts":{"from":"earliest"}}`
)

// RawPost writes a whole request before it reads the answer, as many clients do.
func RawPost(t *testing.T, s *Sidecar, headers string, body io.Reader) (status int, text string) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(Patience))
	if _, err := fmt.Fprintf(c, "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\n%s\r\n", headers); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(c, body); err != nil {
		t.Fatalf("the body cannot be sent: %v", err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(content)
}

// SmallLimits keep the inputs that exceed them short.
func SmallLimits() wire.Limits {
	return wire.Limits{
		PayloadBytes: 100, HeaderCount: 4, HeaderBytes: 200, KeyBytes: 10,
		BatchEvents: 3, BatchBytes: 1000, FrameBytes: 4000, JSONDepth: 8,
	}
}
