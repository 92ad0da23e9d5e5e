package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// only returns the sidecar's one connection. A connection is registered after its client has been
// told that it is a WebSocket.
func (s *sidecar) only(t testing.TB) *conn {
	t.Helper()
	eventually(t, "there is one connection", func() bool { return s.gateway.Stats().Connections == 1 })
	s.gateway.mu.Lock()
	defer s.gateway.mu.Unlock()
	for c := range s.gateway.conns {
		return c
	}
	return nil
}

// queued is how many bytes wait in a connection's send buffer.
func (c *conn) queued() int {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.queued
}

// fill publishes more than the sockets between sidecar and client can hold.
func (s *sidecar) fill(t testing.TB, topic string) (events int) {
	t.Helper()
	payload := strings.Repeat("x", 20_000)
	var lines strings.Builder
	for ; events < 200; events++ {
		fmt.Fprintf(&lines, `{"payload":"%s","opts":{"id":"%d","key":"k"}}`+"\n", payload, events)
	}
	if res, body := s.do(t, "POST", "/v1/topics/"+topic+"/events", lines.String(), "Content-Type: application/x-ndjson"); res.StatusCode != 200 {
		t.Fatal(body)
	}
	return events
}

// TestSlowReader: the sidecar buffers a bounded number of events for a client that does not read.
// The client misses nothing once it reads.
func TestSlowReader(t *testing.T) {
	const bound = 256 << 10
	b := DefaultBounds()
	b.SendBufferBytes = bound
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) {
			s := start(t, setup{bounds: &b})
			c := s.dial(t)
			c.ask(`{"op":"SUBSCRIBE","topic":"t","group":%q,"opts":{"ordered":false,"maxInflight":1000}}`, group)
			events := s.fill(t, "t")
			server := s.only(t)
			eventually(t, "the send buffer is full", func() bool { return !server.out.hasRoom() })
			if group != "" {
				eventually(t, "blocked by slow_reader", func() bool {
					_, body := s.do(t, "GET", "/v1/topics/t/groups/g", "")
					return strings.Contains(body, `"blocked_by":"slow_reader"`)
				})
			}
			// A turn hands over 256 KiB and one event more, as JSON.
			if got, most := server.queued(), bound+300_000; got > most {
				t.Errorf("%d bytes wait for a client that does not read; at most %d may", got, most)
			}
			for i := range events {
				c.wantEvent(fmt.Sprint(i))
			}
			c.alive()
		})
	}
}

// TestUnreadReplies: the sidecar does not read from a client that does not read its replies.
func TestUnreadReplies(t *testing.T) {
	const bound, requests = 64 << 10, 50
	b := DefaultBounds()
	b.SendBufferBytes = bound
	s := start(t, setup{bounds: &b})
	c := s.dial(t)
	// Each asks for a hundred kilobytes of refusals.
	text := []byte(`{"op":"PUBLISH","topic":"t","events":[1` + strings.Repeat(",1", 999) + `]}`)
	var sending sync.WaitGroup
	sending.Go(func() {
		for range requests {
			if err := c.write(websocket.MessageText, text); err != nil {
				t.Error(err)
				return
			}
		}
	})
	server := s.only(t)
	eventually(t, "the send buffer is full", func() bool { return server.queued() > bound })
	for range requests {
		if f := c.want("OK"); len(f.Results) != 1000 {
			t.Fatalf("%d results", len(f.Results))
		}
		// Requests of one read from the socket may be answered beyond the bound.
		if got, most := server.queued(), bound+3*150_000; got > most {
			t.Fatalf("%d bytes wait; at most %d may", got, most)
		}
	}
	sending.Wait()
	c.alive()
}

func TestSlowClientIsDisconnected(t *testing.T) {
	b := DefaultBounds()
	b.SlowClientTimeout = 50 * time.Millisecond
	s := start(t, setup{bounds: &b})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"ordered":false}}`)
	s.fill(t, "t")
	eventually(t, "the connection is gone", func() bool { return s.gateway.Stats().Connections == 0 })
	other := s.dial(t)
	// One event fits into the socket's buffer, however slowly this process reads it.
	other.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxInflight":1}}`)
	if f := other.wantEvent("0"); f.Ctx.Attempt < 2 {
		t.Errorf("attempt %d", f.Ctx.Attempt)
	}
}

// TestPublishWindow: the sidecar takes no more of a client's pipelined events at a time than the
// window allows.
func TestPublishWindow(t *testing.T) {
	const window, publishes = 10, 500
	b := DefaultBounds()
	b.UnansweredEvents = window
	s := start(t, setup{bounds: &b})
	c := s.dial(t)
	s.log.hold()
	for i := range publishes {
		c.send(`{"op":"PUBLISH","topic":"t","payload":%d,"opts":{"key":"k"},"corr":"%d"}`, i, i)
	}
	c.send(`{"op":"PUBLISH","topic":"t","events":[%s]}`, strings.Repeat(`{"payload":0},`, 2*window)+`{"payload":0}`) // larger than the window
	c.send(`{"op":"PING","corr":"last"}`)
	server := s.only(t)
	eventually(t, "the window is full", func() bool {
		server.window.mu.Lock()
		defer server.window.mu.Unlock()
		return server.window.events == window
	})
	s.log.open()
	for i := range publishes {
		if f := c.want("OK"); f.Corr != fmt.Sprint(i) || f.Seq != uint64(i+1) {
			t.Fatalf("reply %d: %+v", i, f)
		}
	}
	ops := []frame{c.want("OK"), c.want("OK")}
	if len(ops[0].Results)+len(ops[1].Results) != 2*window+1 {
		t.Errorf("last replies: %+v", ops)
	}
	if got := s.log.largestBatch(); got > 2*window+1 {
		t.Errorf("a batch of %d events came out of a window of %d", got, window)
	}
}

// TestPipelining: publishes of one connection with the same key are logged in the order in which
// they were sent.
func TestPipelining(t *testing.T) {
	const publishes, keys, publishers = 400, 5, 3
	s := start(t, setup{})
	reader := s.dial(t)
	reader.ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	var busy sync.WaitGroup
	for p := range publishers {
		c := s.dial(t)
		busy.Go(func() {
			for i := range publishes {
				text := fmt.Sprintf(`{"op":"PUBLISH","topic":"t","payload":%d,"opts":{"key":"%d/%d"}}`, i, p, i%keys)
				if err := c.write(websocket.MessageText, []byte(text)); err != nil {
					t.Error(err)
				}
			}
		})
		busy.Go(func() {
			for range publishes {
				if f, err := c.read(); err != nil || f.Op != "OK" {
					t.Error(f, err)
				}
			}
		})
	}
	next := make(map[string]int)
	for range publishers * publishes {
		f := reader.want("EVENT")
		var p, k, i int
		fmt.Sscanf(f.Event.Key, "%d/%d", &p, &k)
		fmt.Sscan(string(f.Event.Payload), &i)
		if want := k + keys*next[f.Event.Key]; i != want {
			t.Fatalf("key %s: got %d, want %d", f.Event.Key, i, want)
		}
		next[f.Event.Key]++
	}
	busy.Wait()
}

// TestShutdown checks that a stopping gateway answers publishes under way, gives deliveries in
// flight back without counting an attempt, and tells every client.
func TestShutdown(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"rebalance":true}}`)
	c.want("ASSIGNED")
	s.publish(t, "t", "e", "k")
	c.wantEvent("e")
	s.log.hold()
	c.send(`{"op":"PUBLISH","topic":"t","payload":1,"corr":"under way"}`)
	server := s.only(t)
	eventually(t, "the publish is under way", func() bool {
		server.window.mu.Lock()
		defer server.window.mu.Unlock()
		return server.window.events == 1
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop()
	}()
	c.want("REVOKED")
	c.send(`{"op":"PUBLISH","topic":"t","payload":1}`)
	c.want("ERR/store_unavailable")
	for _, path := range []string{"/v1/topics/t/events", "/ws"} {
		method := map[bool]string{true: "GET", false: "POST"}[path == "/ws"]
		if res, body := s.do(t, method, path, "1"); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s while shutting down: %s %s", path, res.Status, body)
		}
	}
	s.log.open()
	if f := c.want("OK"); f.Corr != "under way" {
		t.Errorf("reply: %+v", f)
	}
	var closed websocket.CloseError
	if _, err := c.read(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
		t.Errorf("end: %v", err)
	}
	<-stopped
	info, err := s.gateway.cfg.Groups.Info(context.Background(), "t", "g")
	if err != nil || info.Inflight != 0 || len(info.Members) != 0 || info.Lag != 2 {
		t.Errorf("group: %+v, %v", info, err)
	}
}

// TestShutdownDoesNotWaitForEver: a client that does not answer the close frame is cut off when the
// time is up.
func TestShutdownDoesNotWaitForEver(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"PING"}`)
	s.log.hold() // and its publish is not answered either
	c.send(`{"op":"PUBLISH","topic":"t","payload":1}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s.gateway.Shutdown(ctx)
	if n := s.gateway.Stats().Connections; n != 0 {
		t.Errorf("%d connections left", n)
	}
}
