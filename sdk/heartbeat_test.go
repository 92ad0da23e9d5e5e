//go:build go1.25

package sluice_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
)

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns chan net.Conn
	life  context.Context
	end   context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.life.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.end()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

// The answer to a ping may be far behind the events of a slow subscription: a connection on which
// an event was taken since is alive, also at a moment at which no handler is waited for.
func TestAConnectionThatDeliversIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var subscribes, pings atomic.Int64
		server := scripted(t, func(conn int, op string) string {
			switch {
			case op == "SUBSCRIBE":
				subscribes.Add(1)
			case op == "PING" && conn > 1: // the first one publishes
				return fmt.Sprintf(`{"op":"EVENT","topic":"orders","group":"g",`+
					`"event":{"id":"e%d","topic":"orders","ts":1,"payload":1},"ctx":{"attempt":1,"ack_deadline_ms":30000}}`, pings.Add(1))
			}
			return okay
		})
		listener := newPipes()
		_ = server.Listener.Close()
		server.Listener = listener
		server.Start()
		defer server.Close()
		client, err := sluice.Dial(t.Context(), server.URL, sluice.WithDialer(listener.dial))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Subscribe(t.Context(), "orders", "g", nothing); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := subscribes.Load(); n != 1 || pings.Load() < 10 {
			t.Errorf("it subscribed %d times, and was pinged %d times", n, pings.Load())
		}
	})
}
