package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/budget"
)

// awaitUnused waits until the whole budget is free.
func awaitUnused(t *testing.T, memory *budget.Budget) {
	t.Helper()
	eventually(t, "all memory is given back", func() bool { return memory.Used() == 0 })
}

// While others have used up the memory, the sidecar refuses a large message or body, under its
// corr. Small ones pass, and the connection goes on.
func TestLargeMessagesAreRefusedWithoutMemory(t *testing.T) {
	memory := budget.New(1 << 20)
	s := start(t, setup{memory: memory})
	c := s.dial(t)
	large := strings.Repeat("x", 60<<10)
	c.ask(`{"op":"PUBLISH","topic":"t","corr":"before","payload":"%s"}`, large[:30<<10])
	awaitUnused(t, memory)
	memory.Take(1000 << 10)
	for range 3 {
		c.send(`{"op":"PUBLISH","corr":"mine","topic":"t","payload":"%s"}`, large)
		if f := c.want("ERR/overloaded"); f.Corr != "mine" || f.RetryAfterMS == nil || !strings.Contains(f.Msg, "1048576 bytes of memory") {
			t.Errorf("%+v", f)
		}
	}
	c.ask(`{"op":"PUBLISH","topic":"t","payload":"small"}`)
	c.alive()
	if status, text := rawPost(t, s, fmt.Sprintf("Content-Length: %d\r\n", len(large)+2), strings.NewReader(`"`+large+`"`)); status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"overloaded"`) || !strings.Contains(text, `"retry_after_ms":1000`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := rawPost(t, s, "Content-Length: 1\r\n", strings.NewReader("1")); status != http.StatusCreated {
		t.Errorf("%d %s", status, text)
	}
	memory.Give(1000 << 10)
	c.ask(`{"op":"PUBLISH","topic":"t","payload":"%s"}`, large[:20<<10])
	awaitUnused(t, memory)
}

// A client that is not answered yet, or does not read, takes memory of the budget until it is gone.
func TestWhatIsUnderWayIsCounted(t *testing.T) {
	memory := budget.New(1 << 20)
	s := start(t, setup{memory: memory})
	c := s.dial(t)
	c.ask(`{"op":"PUBLISH","topic":"t","opts":{"id":"a"},"payload":"%s"}`, strings.Repeat("x", 10<<10))
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)
	c.wantEvent("a")
	if used := memory.Used(); used < 10<<10 {
		t.Errorf("%d bytes are taken for an unacked event of 10 KiB", used)
	}
	s.log.hold()
	c.send(`{"op":"PUBLISH","topic":"t","payload":"%s"}`, strings.Repeat("x", 30<<10))
	eventually(t, "a publish is under way", func() bool { return memory.Used() >= 40<<10 })
	s.log.open()
	c.ws.CloseNow()
	eventually(t, "what the connection had is given back", func() bool { return memory.Used() <= 64<<10 })
}

// While there is no memory, a connection is sent events only once it has read the waiting ones. A
// client that reads gets them all.
func TestDeliveriesWithoutMemory(t *testing.T) {
	memory := budget.New(1)
	s := start(t, setup{memory: memory, policies: onePartition})
	for i := range 50 {
		s.publish(t, "t", fmt.Sprint(i), "")
	}
	memory.Take(1 << 20)
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)
	for i := 0; i < 50; {
		if f := c.next(); f.Op == "EVENT" {
			if f.Event.ID != fmt.Sprint(i) {
				t.Fatalf("event %s; want %d", f.Event.ID, i)
			}
			c.send(`{"op":"ACK","topic":"t","group":"g","id":"%d"}`, i)
			i++
		}
	}
	alone := s.dial(t)
	alone.ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"earliest"}}`)
	for i := range 50 {
		alone.wantEvent(fmt.Sprint(i))
	}
	memory.Give(1 << 20)
	awaitUnused(t, memory)
}

// A message or a body that is not complete in time ends its connection, and the client is told why.
func TestMessageThatDoesNotComeWhole(t *testing.T) {
	t.Parallel()
	bounds := DefaultBounds()
	bounds.ReceiveTimeout = 50 * time.Millisecond
	memory := budget.New(1 << 20)
	s := start(t, setup{bounds: &bounds, memory: memory})
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	head := append([]byte{0x81, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, 1<<20)...)
	_, _ = c.Write(append(head, make([]byte, 4+100_000)...))
	var got bytes.Buffer
	_, _ = got.ReadFrom(c) // until it is closed
	if text := got.String(); !strings.Contains(text, `"code":"bad_request"`) || !strings.Contains(text, "did not arrive completely within 50ms") || !strings.Contains(text, "\x03\xf0a message did not arrive completely") {
		t.Errorf("%q", text)
	}
	awaitUnused(t, memory)

	if status, text := rawPost(t, s, "Content-Length: 1000\r\n", strings.NewReader("1")); status != http.StatusBadRequest || !strings.Contains(text, "did not arrive completely within 50ms") {
		t.Errorf("%d %s", status, text)
	}
}

// A message has its deadline from its beginning on. There is no deadline between two messages.
func TestDeadlineOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, peer := pipedSendBuffer(Bounds{SendBufferBytes: 1000, SlowClientTimeout: time.Hour, ReceiveTimeout: time.Minute})
		read := func() error { _, err := o.Read(make([]byte, 1)); return err }
		drip := func(n int) {
			for range n {
				time.Sleep(25 * time.Second)
				_, _ = peer.Write([]byte{1})
			}
		}
		go drip(2 + 2 + 4)
		for range 2 {
			o.beginMessage()
			for range 2 {
				if err := read(); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.endMessage(); err != nil {
				t.Fatal(err)
			}
		}
		o.beginMessage()
		var err error
		n := 0
		for ; err == nil; n++ {
			err = read()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || n != 3 {
			t.Errorf("%v at byte %d; want no more than a minute's", err, n)
		}
		_ = o.Close()
		_ = peer.Close()
		o.wait()
		time.Sleep(time.Hour) // until nobody writes any more
	})
}
