package controlplane

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// maxUnread is how long sidecars are served policies that were not compared with the store:
	// other control planes may have changed them since.
	maxUnread = 10 * time.Second
	lookEvery = 200 * time.Millisecond
)

// current reports whether the policies in force were compared with the store within maxUnread.
func (c *ControlPlane) current() bool { return c.catalog.Unread() < maxUnread }

// watchGate disconnects sidecars while the store cannot be read, so that they connect to another
// control plane.
func (c *ControlPlane) watchGate(ctx context.Context) error {
	open := true
	for pause.For(ctx, lookEvery) {
		switch current := c.current(); {
		case current == open:
			continue
		case current:
			c.cfg.Logger.Info("the policy store can be read again; sidecars may connect")
		default:
			c.cfg.Logger.Error("the policy store could not be read for a long time; disconnecting sidecars, so that they connect "+
				"to another control plane", "unread", c.catalog.Unread())
		}
		open = !open
		c.gate.set(open)
	}
	return nil
}

// gate is a listener that can be shut. A shut gate closes all open and new connections, so that
// clients try another address; clients would stay on a connection that refuses only their streams.
type gate struct {
	net.Listener

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

func newGate(l net.Listener) *gate { return &gate{Listener: l, conns: map[net.Conn]struct{}{}} }

// set opens or shuts it.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = !open
	for c := range g.conns {
		if g.shut {
			_ = c.Close() // the gRPC server gets the error
			delete(g.conns, c)
		}
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil || g.admit(c) {
			return &gatedConn{c, g}, err
		}
		_ = c.Close() // nothing was sent yet
	}
}

func (g *gate) admit(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.conns[c] = struct{}{}
	}
	return !g.shut
}

// gatedConn is a connection that a gate has accepted.
type gatedConn struct {
	net.Conn
	gate *gate
}

func (c *gatedConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
