package ws_test

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

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/ws"
)

// only returns the sidecar's one connection. A connection is registered after its client has been
// told that it is a WebSocket.
func (s *sidecar) only(t testing.TB) *ws.Conn {
	t.Helper()
	gatewaytest.Eventually(t, "there is one connection", func() bool { return s.Gateway.Stats().Connections == 1 })
	return s.Gateway.Sockets.Only()
}

// fill publishes more than the sockets between sidecar and client can hold.
func (s *sidecar) fill(t testing.TB, topic string) (events int) {
	t.Helper()
	payload := strings.Repeat("x", 20_000)
	var lines strings.Builder
	for ; events < 200; events++ {
		fmt.Fprintf(&lines, `{"payload":"%s","opts":{"id":"%d","key":"k"}}`+"\n", payload, events)
	}
	if res, body := s.Do(t, "POST", "/v1/topics/"+topic+"/events", lines.String(),
		"Content-Type: application/x-ndjson"); res.StatusCode != 200 {
		t.Fatal(body)
	}
	return events
}

// TestSlowReader: the sidecar buffers a bounded number of events for a client that does not read.
// The client misses nothing once it reads.
func TestSlowReader(t *testing.T) {
	const bound = 256 << 10
	b := session.DefaultBounds()
	b.SendBufferBytes = bound
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) {
			s := start(t, gatewaytest.Setup{Bounds: &b})
			c := s.Dial(t)
			c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":%q,"opts":{"ordered":false,"maxInflight":1000}}`, group)
			events := s.fill(t, "t")
			server := s.only(t)
			gatewaytest.Eventually(t, "the send buffer is full", func() bool { return !server.HasRoom() })
			if group != "" {
				gatewaytest.Eventually(t, "blocked by slow_reader", func() bool {
					_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
					return strings.Contains(body, `"blocked_by":"slow_reader"`)
				})
			}
			// A turn hands over 256 KiB and one event more, as JSON.
			if got, most := server.Queued(), bound+300_000; got > most {
				t.Errorf("%d bytes wait for a client that does not read; at most %d may", got, most)
			}
			for i := range events {
				c.WantEvent(fmt.Sprint(i))
			}
			c.Alive()
		})
	}
}

// TestUnreadReplies: the sidecar does not read from a client that does not read its replies.
func TestUnreadReplies(t *testing.T) {
	const bound, requests = 64 << 10, 50
	b := session.DefaultBounds()
	b.SendBufferBytes = bound
	s := start(t, gatewaytest.Setup{Bounds: &b})
	c := s.Dial(t)
	// Each asks for a hundred kilobytes of refusals.
	text := []byte(`{"op":"PUBLISH","topic":"t","events":[1` + strings.Repeat(",1", 999) + `]}`)
	var sending sync.WaitGroup
	sending.Go(func() {
		for range requests {
			if err := c.Write(websocket.MessageText, text); err != nil {
				t.Error(err)
				return
			}
		}
	})
	server := s.only(t)
	gatewaytest.Eventually(t, "the send buffer is full", func() bool { return server.Queued() > bound })
	for range requests {
		if f := c.Want("OK"); len(f.Results) != 1000 {
			t.Fatalf("%d results", len(f.Results))
		}
		// Requests of one read from the socket may be answered beyond the bound.
		if got, most := server.Queued(), bound+3*150_000; got > most {
			t.Fatalf("%d bytes wait; at most %d may", got, most)
		}
	}
	sending.Wait()
	c.Alive()
}

func TestSlowClientIsDisconnected(t *testing.T) {
	b := session.DefaultBounds()
	b.SlowClientTimeout = 50 * time.Millisecond
	s := start(t, gatewaytest.Setup{Bounds: &b})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"ordered":false}}`)
	s.fill(t, "t")
	gatewaytest.Eventually(t, "the connection is gone", func() bool { return s.Gateway.Stats().Connections == 0 })
	other := s.Dial(t)
	// One event fits into the socket's buffer, however slowly this process reads it.
	other.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxInflight":1}}`)
	if f := other.WantEvent("0"); f.Ctx.Attempt < 2 {
		t.Errorf("attempt %d", f.Ctx.Attempt)
	}
}

// TestPublishWindow: the sidecar takes no more of a client's pipelined events at a time than the
// window allows.
func TestPublishWindow(t *testing.T) {
	const window, publishes = 10, 500
	b := session.DefaultBounds()
	b.UnansweredEvents = window
	s := start(t, gatewaytest.Setup{Bounds: &b})
	c := s.Dial(t)
	s.Log.Hold()
	for i := range publishes {
		c.Send(`{"op":"PUBLISH","topic":"t","payload":%d,"opts":{"key":"k"},"corr":"%d"}`, i, i)
	}
	c.Send(`{"op":"PUBLISH","topic":"t","events":[%s]}`, strings.Repeat(`{"payload":0},`, 2*window)+`{"payload":0}`) // larger than the window
	c.Send(`{"op":"PING","corr":"last"}`)
	server := s.only(t)
	gatewaytest.Eventually(t, "the window is full", func() bool {
		return server.Unanswered() == window
	})
	s.Log.Open()
	for i := range publishes {
		if f := c.Want("OK"); f.Corr != fmt.Sprint(i) || f.Seq != uint64(i+1) {
			t.Fatalf("reply %d: %+v", i, f)
		}
	}
	ops := []gatewaytest.Frame{c.Want("OK"), c.Want("OK")}
	if len(ops[0].Results)+len(ops[1].Results) != 2*window+1 {
		t.Errorf("last replies: %+v", ops)
	}
	if got := s.Log.LargestBatch(); got > 2*window+1 {
		t.Errorf("a batch of %d events came out of a window of %d", got, window)
	}
}

// TestPipelining: publishes of one connection with the same key are logged in the order in which
// they were sent.
func TestPipelining(t *testing.T) {
	const publishes, keys, publishers = 400, 5, 3
	s := start(t, gatewaytest.Setup{})
	reader := s.Dial(t)
	reader.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	var busy sync.WaitGroup
	for p := range publishers {
		c := s.Dial(t)
		busy.Go(func() {
			for i := range publishes {
				text := fmt.Sprintf(`{"op":"PUBLISH","topic":"t","payload":%d,"opts":{"key":"%d/%d"}}`, i, p, i%keys)
				if err := c.Write(websocket.MessageText, []byte(text)); err != nil {
					t.Error(err)
				}
			}
		})
		busy.Go(func() {
			for range publishes {
				if f, err := c.Read(); err != nil || f.Op != "OK" {
					t.Error(f, err)
				}
			}
		})
	}
	next := make(map[string]int)
	for range publishers * publishes {
		f := reader.Want("EVENT")
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
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"rebalance":true}}`)
	c.Want("ASSIGNED")
	s.Publish(t, "t", "e", "k")
	c.WantEvent("e")
	s.Log.Hold()
	c.Send(`{"op":"PUBLISH","topic":"t","payload":1,"corr":"under way"}`)
	server := s.only(t)
	gatewaytest.Eventually(t, "the publish is under way", func() bool {
		return server.Unanswered() == 1
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop()
	}()
	c.Want("REVOKED")
	c.Send(`{"op":"PUBLISH","topic":"t","payload":1}`)
	c.Want("ERR/store_unavailable")
	for _, path := range []string{"/v1/topics/t/events", "/ws"} {
		method := map[bool]string{true: "GET", false: "POST"}[path == "/ws"]
		if res, body := s.Do(t, method, path, "1"); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s while shutting down: %s %s", path, res.Status, body)
		}
	}
	s.Log.Open()
	if f := c.Want("OK"); f.Corr != "under way" {
		t.Errorf("reply: %+v", f)
	}
	var closed websocket.CloseError
	if _, err := c.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
		t.Errorf("end: %v", err)
	}
	<-stopped
	info, err := s.Groups.Info(context.Background(), "t", "g")
	if err != nil || info.Inflight != 0 || len(info.Members) != 0 || info.Lag != 2 {
		t.Errorf("group: %+v, %v", info, err)
	}
}

// TestShutdownDoesNotWaitForEver: a client that does not answer the close frame is cut off when the
// time is up.
func TestShutdownDoesNotWaitForEver(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"PING"}`)
	s.Log.Hold() // and its publish is not answered either
	c.Send(`{"op":"PUBLISH","topic":"t","payload":1}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s.Gateway.Shutdown(ctx)
	if n := s.Gateway.Stats().Connections; n != 0 {
		t.Errorf("%d connections left", n)
	}
}
