package sluice

import (
	"bufio"
	"net"
	"sync"
)

const (
	readBuffer  = 64 << 10
	corkedBytes = 64 << 10 // what may wait in a corked connection
)

// corkedConn is a connection whose writes can be held back. The WebSocket library writes each frame
// by itself, to send it at once. Between cork and uncork the connection gathers the frames, and
// sends them in few system calls. Frames that the library sends by itself (pong, close) meanwhile
// wait for uncork; the writer corks only while it has frames at hand, so that is soon.
type corkedConn struct {
	net.Conn
	in *bufio.Reader // of the one goroutine that reads

	mu     sync.Mutex
	corked bool
	out    []byte
}

func newCorkedConn(c net.Conn) *corkedConn {
	return &corkedConn{Conn: c, in: bufio.NewReaderSize(c, readBuffer)}
}

func (c *corkedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *corkedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.corked {
		return c.Conn.Write(p)
	}
	c.out = append(c.out, p...)
	if len(c.out) < corkedBytes {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *corkedConn) cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

func (c *corkedConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.flush()
}

func (c *corkedConn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.out)
	c.out = c.out[:0]
	return err
}
