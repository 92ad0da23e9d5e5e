package listen

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bound is a listener with a bound on its connections. Further connections get an error and are
// closed.
type Bound struct {
	net.Listener
	most   int64
	refuse func(net.Conn)

	open     atomic.Int64
	refusing atomic.Int64
	parting  sync.WaitGroup
}

const (
	// minRefusing and maxRefusing bound the connections that are being refused at a time, up to a
	// part of those admitted; others are closed at once.
	minRefusing   = 8
	maxRefusing   = 64
	refusingShare = 16
	// refusalTime bounds the time of a refusal.
	refusalTime = time.Second
)

// NewBound bounds the connections of ln. refuse answers a refused connection; it need not close it,
// and its deadline is set.
func NewBound(ln net.Listener, most int, refuse func(net.Conn)) *Bound {
	return &Bound{Listener: ln, most: int64(most), refuse: refuse}
}

// Accept returns the next connection within the bound.
func (b *Bound) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.most {
			return &boundConn{Conn: c, bound: b}, nil
		}
		b.open.Add(-1)
		b.turnAway(c)
	}
}

func (b *Bound) turnAway(c net.Conn) {
	if b.refusing.Add(1) > min(max(b.most/refusingShare, minRefusing), maxRefusing) {
		b.refusing.Add(-1)
		c.Close()
		return
	}
	b.parting.Go(func() {
		defer b.refusing.Add(-1)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(refusalTime))
		b.refuse(c)
	})
}

// Close closes the listener, and returns once no refusal is under way any more.
func (b *Bound) Close() error {
	err := b.Listener.Close()
	b.parting.Wait()
	return err
}

// boundConn is counted until it is closed.
type boundConn struct {
	net.Conn
	bound *Bound
	once  sync.Once
}

// Close closes the connection.
func (c *boundConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.bound.open.Add(-1) })
	return err
}

// CloseWrite closes the writing side, if the connection can.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
