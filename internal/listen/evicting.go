package listen

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// Evicting is a listener with a bound on its connections. One more connection closes the one that
// has been idle for the longest time: a connection is idle unless it is held for a request.
//
// Some of the places are in reserve: they are never held. So there is always an idle connection to
// close, and whatever a few clients hold, requests that need no hold are served.
type Evicting struct {
	net.Listener
	most, mostHeld int // places, and those that may be held

	// OnEvict, if it is set, is called for each connection that is closed for another one, or for its head.
	OnEvict func()
	// Heads, if it is set, counts what connections have sent of a request that has not begun, beyond smallHead each. It is for
	// servers that call Begin and End. A connection for which nothing is left is closed.
	Heads Memory

	mu      sync.Mutex
	open    int
	idle    *list.List // of *evictable, the one that is idle for the longest time first
	held    int        // connections that are held
	evicted atomic.Int64
}

// MaxHeadBytes is the most that the head of a request, or the metadata of a call, may have.
const MaxHeadBytes = 64 << 10

// smallHead is how much of a request's head does not count: it is in the buffer that each connection has.
const smallHead = 4 << 10

// Memory has a bound.
type Memory interface {
	TryTake(n int) error
	Give(n int)
}

// NewEvicting bounds the connections of ln. At least one place is in reserve.
func NewEvicting(ln net.Listener, most, reserve int) *Evicting {
	most = max(most, 2)
	return &Evicting{Listener: ln, most: most, mostHeld: most - min(max(reserve, 1), most-1), idle: list.New()}
}

// Evicted is how many connections were closed for others, or for their heads. It may be called on nil.
func (e *Evicting) Evicted() int64 {
	if e == nil {
		return 0
	}
	return e.evicted.Load()
}

// Accept returns the next connection.
func (e *Evicting) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	var evicted *evictable
	if e.open >= e.most {
		evicted = e.idle.Front().Value.(*evictable)
		evicted.leave()
	}
	e.open++
	taken := &evictable{Conn: c, of: e}
	taken.place = e.idle.PushBack(taken)
	e.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close() // its server gets the error, and closes it once more
		e.onEvict()
	}
	return taken, nil
}

func (e *Evicting) onEvict() {
	e.evicted.Add(1)
	if e.OnEvict != nil {
		e.OnEvict()
	}
}

// evictable is a connection of an Evicting.
type evictable struct {
	net.Conn
	of *Evicting

	// Guarded by of.mu.
	place  *list.Element // among the idle ones, while it is one
	holds  int           // requests that hold it
	closed bool
	give   func() // nil, or gives back what Keep took

	head head
}

// head is what a connection has sent of a request that has not begun.
type head struct {
	requests atomic.Int32 // that have begun, and not ended

	mu    sync.Mutex
	bytes int
	taken int // of Heads
}

// Read reads what the client sends.
func (c *evictable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.of.Heads == nil || c.head.requests.Load() > 0 {
		return n, err
	}
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	c.head.bytes += n
	if more := c.head.bytes - smallHead - c.head.taken; more > 0 {
		if err := c.of.Heads.TryTake(more); err != nil {
			c.of.onEvict()
			return 0, err // its server closes it
		}
		c.head.taken += more
	}
	return n, err
}

// forgetHead gives back what the head of a request took.
func (c *evictable) forgetHead() {
	if c.of.Heads == nil {
		return
	}
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	c.of.Heads.Give(c.head.taken)
	c.head.bytes, c.head.taken = 0, 0
}

// Begin says that a request has begun whose connection has this local address: from here on whoever serves it counts what it
// holds. Each needs an End.
func Begin(local net.Addr) {
	if addr, ours := local.(localAddr); ours {
		addr.conn.head.requests.Add(1)
		addr.conn.forgetHead()
	}
}

// End says that a request has ended.
func End(local net.Addr) {
	if addr, ours := local.(localAddr); ours {
		addr.conn.head.requests.Add(-1)
	}
}

// leave gives the place of the connection back. The caller holds of.mu.
func (c *evictable) leave() {
	if c.closed {
		return
	}
	c.closed = true
	c.of.open--
	if c.give != nil {
		c.give()
	}
	if c.holds > 0 {
		c.of.held--
		return
	}
	c.of.idle.Remove(c.place)
}

// Close closes the connection.
func (c *evictable) Close() error {
	err := c.Conn.Close()
	c.forgetHead()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.leave()
	return err
}

// CloseWrite closes the writing side, if the connection can.
func (c *evictable) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// LocalAddr returns an address with which [Hold] finds the connection. Servers of HTTP and gRPC,
// and TLS between them and the connection, pass it on with each request.
func (c *evictable) LocalAddr() net.Addr { return localAddr{c.Conn.LocalAddr(), c} }

type localAddr struct {
	net.Addr
	conn *evictable
}

// Hold keeps the connection with this local address, of an [Evicting] listener, until release is
// called. It reports false if as many are held as may be, or the connection is closed already. Other
// connections need no hold.
func Hold(local net.Addr) (release func(), ok bool) {
	addr, ours := local.(localAddr)
	if !ours {
		return func() {}, true
	}
	return addr.conn.hold()
}

// ErrFull is Keep's where as many connections are held as may be.
var ErrFull = errors.New("the listener holds as many connections as it may")

// Keep holds the connection with this local address, of an [Evicting] listener, until it is closed. take takes what it counts for; give
// gives that back when it is closed, and must not block. Other connections need no hold, and count for nothing.
func Keep(local net.Addr, take func() error, give func()) error {
	addr, ours := local.(localAddr)
	if !ours {
		return nil
	}
	if err := take(); err != nil {
		return err
	}
	c := addr.conn
	if _, ok := c.hold(); !ok {
		give()
		return ErrFull
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.closed {
		give()
	} else {
		c.give = give
	}
	return nil
}

func (c *evictable) hold() (release func(), ok bool) {
	e := c.of
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.closed || c.holds == 0 && e.held >= e.mostHeld {
		return nil, false
	}
	if c.holds == 0 {
		e.held++
		e.idle.Remove(c.place)
	}
	c.holds++
	return c.release, true
}

func (c *evictable) release() {
	e := c.of
	e.mu.Lock()
	defer e.mu.Unlock()
	c.holds--
	if c.holds > 0 || c.closed {
		return
	}
	e.held--
	c.place = e.idle.PushBack(c)
}
