package receive_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/test/require"
)

// awaitUnused waits until the whole budget is free.
func awaitUnused(t *testing.T, all *budget.Budget) {
	t.Helper()
	gatewaytest.Eventually(t, "all memory is given back", func() bool { return all.Used() == 0 })
}

// While others have used up the memory, the sidecar refuses a large message or body, under its
// corr. Small ones pass, and the connection goes on.
func TestLargeMessagesAreRefusedWithoutMemory(t *testing.T) {
	all := budget.New(budget.Bounds{Memory: 1 << 20, Places: budget.DefaultPlaces()})
	memory := all.Of("others")
	s := gatewaytest.Start(t, gatewaytest.Setup{Budget: all})
	c := s.Dial(t)
	large := strings.Repeat("x", 60<<10)
	c.Ask(`{"op":"PUBLISH","topic":"t","corr":"before","payload":"%s"}`, large[:30<<10])
	awaitUnused(t, all)
	memory.Take(1000 << 10)
	for range 3 {
		c.Send(`{"op":"PUBLISH","corr":"mine","topic":"t","payload":"%s"}`, large)
		if f := c.Want("ERR/overloaded"); f.Corr != "mine" || f.RetryAfterMS == nil || !strings.Contains(f.Msg, "1048576 bytes of requests") {
			t.Errorf("%+v", f)
		}
	}
	c.Ask(`{"op":"PUBLISH","topic":"t","payload":"small"}`)
	c.Alive()
	if status, text := gatewaytest.RawPost(t, s, fmt.Sprintf("Content-Length: %d\r\n", len(large)+2),
		strings.NewReader(`"`+large+`"`)); status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"overloaded"`) ||
		!strings.Contains(text, `"retry_after_ms":1000`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := gatewaytest.RawPost(t, s, "Content-Length: 1\r\n", strings.NewReader("1")); status != http.StatusCreated {
		t.Errorf("%d %s", status, text)
	}
	memory.Give(1000 << 10)
	c.Ask(`{"op":"PUBLISH","topic":"t","payload":"%s"}`, large[:20<<10])
	awaitUnused(t, all)
}

// A client that is not answered yet, or does not read, takes memory of the budget until it is gone.
func TestWhatIsUnderWayIsCounted(t *testing.T) {
	all := budget.New(budget.Bounds{Memory: 1 << 20, Places: budget.DefaultPlaces()})
	s := gatewaytest.Start(t, gatewaytest.Setup{Budget: all})
	c := s.Dial(t)
	c.Ask(`{"op":"PUBLISH","topic":"t","opts":{"id":"a"},"payload":"%s"}`, strings.Repeat("x", 10<<10))
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)
	c.WantEvent("a")
	if used := all.Used(); used < 10<<10 {
		t.Errorf("%d bytes are taken for an unacked event of 10 KiB", used)
	}
	s.Log.Hold()
	c.Send(`{"op":"PUBLISH","topic":"t","payload":"%s"}`, strings.Repeat("x", 30<<10))
	gatewaytest.Eventually(t, "a publish is under way", func() bool { return all.Used() >= 40<<10 })
	s.Log.Open()
	c.WS.CloseNow()
	gatewaytest.Eventually(t, "what the connection had is given back", func() bool { return all.Used() <= 64<<10 })
}

// While there is no memory, a connection is sent events only once it has read the waiting ones. A
// client that reads gets them all.
func TestDeliveriesWithoutMemory(t *testing.T) {
	all := budget.New(budget.Bounds{Memory: 1, Places: budget.DefaultPlaces()})
	memory := all.Of("others")
	s := gatewaytest.Start(t, gatewaytest.Setup{Budget: all, Policies: gatewaytest.OnePartition})
	for i := range 50 {
		s.Publish(t, "t", fmt.Sprint(i), "")
	}
	memory.Take(1 << 20)
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)
	for i := 0; i < 50; {
		if f := c.Next(); f.Op == "EVENT" {
			if f.Event.ID != fmt.Sprint(i) {
				t.Fatalf("event %s; want %d", f.Event.ID, i)
			}
			c.Send(`{"op":"ACK","topic":"t","group":"g","id":"%d"}`, i)
			i++
		}
	}
	alone := s.Dial(t)
	alone.Ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"earliest"}}`)
	for i := range 50 {
		alone.WantEvent(fmt.Sprint(i))
	}
	memory.Give(1 << 20)
	awaitUnused(t, all)
}

// A message or a body that is not complete in time ends its connection, and the client is told why.
func TestMessageThatDoesNotComeWhole(t *testing.T) {
	t.Parallel()
	bounds := session.DefaultBounds()
	bounds.ReceiveTimeout = 50 * time.Millisecond
	all := budget.New(budget.Bounds{Memory: 1 << 20, Places: budget.DefaultPlaces()})
	s := gatewaytest.Start(t, gatewaytest.Setup{Bounds: &bounds, Budget: all})
	c, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(gatewaytest.Patience))
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "+
		"13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	head := append([]byte{0x81, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, 1<<20)...)
	_, _ = c.Write(append(head, make([]byte, 4+100_000)...))
	var got bytes.Buffer
	_, _ = got.ReadFrom(c) // until it is closed
	if text := got.String(); !strings.Contains(text, `"code":"bad_request"`) ||
		!strings.Contains(text, "did not arrive completely within 50ms") ||
		!strings.Contains(text, "\x03\xf0a message did not arrive completely") {
		t.Errorf("%q", text)
	}
	awaitUnused(t, all)

	if status, text := gatewaytest.RawPost(t, s, "Content-Length: 1000\r\n", strings.NewReader("1")); status != http.StatusBadRequest ||
		!strings.Contains(text, "did not arrive completely within 50ms") {
		t.Errorf("%d %s", status, text)
	}
}
