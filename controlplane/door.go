package controlplane

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// maxUnread is for how long policies may not have been held against the store
	// while sidecars are told of them: others may have changed them since.
	maxUnread = 10 * time.Second
	lookEvery = 200 * time.Millisecond
)

// current reports whether the policies in force are those of the store, but for
// the last seconds.
func (c *ControlPlane) current() bool { return c.catalog.Unread() < maxUnread }

// mindDoor sends sidecars away, to another control plane, while the store cannot
// be read.
func (c *ControlPlane) mindDoor(ctx context.Context) error {
	open := true
	for pause.For(ctx, lookEvery) {
		switch current := c.current(); {
		case current == open:
			continue
		case current:
			c.cfg.Logger.Info("the policy store is read again; sidecars are let in")
		default:
			c.cfg.Logger.Error("the policy store could not be read for long: sidecars are sent away, to another control plane", "unread", c.catalog.Unread())
		}
		open = !open
		c.door.set(open)
	}
	return nil
}

// door is a listener that can be shut: what is connected is closed then, and what
// connects, too, so that clients try another address. A stream that was refused
// alone would leave them on their connection.
type door struct {
	net.Listener

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

func newDoor(l net.Listener) *door { return &door{Listener: l, conns: map[net.Conn]struct{}{}} }

// set opens or shuts it.
func (d *door) set(open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = !open
	for c := range d.conns {
		if d.shut {
			_ = c.Close() // its user learns of it
			delete(d.conns, c)
		}
	}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil || d.enter(c) {
			return &entered{c, d}, err
		}
		_ = c.Close() // nothing was said yet
	}
}

func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.conns[c] = struct{}{}
	}
	return !d.shut
}

// entered is a connection that came in by a door.
type entered struct {
	net.Conn
	by *door
}

func (e *entered) Close() error {
	e.by.mu.Lock()
	delete(e.by.conns, e.Conn)
	e.by.mu.Unlock()
	return e.Conn.Close()
}
