package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// pieceBytes is how much is forwarded at once.
const pieceBytes = 32 << 10

// conn is one client's connection and the one to the target that belongs to it.
type conn struct {
	client *net.TCPConn
	done   context.Context // over when the connection is
	cancel context.CancelFunc

	// Guarded by the proxy's mu.

	server *net.TCPConn // nil until the target has been reached
	// inRequest: a request has begun, and its reply has not.
	inRequest bool
	// doomed: the reply to the request is to be swallowed.
	doomed bool
	// happened, if it is not nil, is closed when the reply is lost.
	happened chan struct{}
}

// reset ends both sides at once. Bytes that the peers have not read are lost. The caller holds the
// proxy's mu.
func (c *conn) reset() {
	c.cancel()
	resetSide(c.client)
	if c.server != nil {
		resetSide(c.server)
	}
}

func resetSide(side *net.TCPConn) {
	side.SetLinger(0) // fails on connections that have ended only
	side.Close()
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				client.Close()
			}
			return
		}
		if err != nil {
			continue // a client that has gone already
		}
		p.admit(ctx, client.(*net.TCPConn))
	}
}

// admit takes a connection up, or refuses it.
func (p *Proxy) admit(ctx context.Context, client *net.TCPConn) {
	c := &conn{client: client}
	c.done, c.cancel = context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || ctx.Err() != nil {
		p.stats.Refused++
		c.reset()
		return
	}
	p.stats.Connections++
	p.conns[c] = struct{}{}
	p.running.Go(func() { p.serve(c) })
}

// serve forwards both ways until the connection is over.
func (p *Proxy) serve(c *conn) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		if c.happened != nil {
			close(c.happened)
		}
		c.cancel()
		c.client.Close()
		if c.server != nil {
			c.server.Close()
		}
	}()
	server, err := new(net.Dialer).DialContext(c.done, "tcp", p.target)
	p.mu.Lock()
	if err == nil {
		c.server = server.(*net.TCPConn)
	}
	if _, live := p.conns[c]; err != nil || !live {
		c.reset()
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()

	var ways sync.WaitGroup
	ways.Go(func() { p.forward(c, ToServer, c.client, c.server) })
	ways.Go(func() { p.forward(c, ToClient, c.server, c.client) })
	ways.Wait()
}

// forward copies one way. An end of the stream is passed on; an error ends the connection.
func (p *Proxy) forward(c *conn, way Direction, from, to *net.TCPConn) {
	buf := make([]byte, pieceBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.pass(c, way, buf[:n]) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				p.abandon(c)
				return
			}
		}
		if err == io.EOF {
			to.CloseWrite() // fails on connections that have ended only
			return
		}
		if err != nil {
			p.abandon(c)
			return
		}
	}
}

// abandon ends a connection that one of its peers has broken.
func (p *Proxy) abandon(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.reset()
}

// pass holds a piece back for as long as the faults want it and tells whether to forward it. If
// not, the connection is over.
func (p *Proxy) pass(c *conn, way Direction, piece []byte) bool {
	if way == ToClient && p.swallowed(c) {
		return false
	}
	return p.hold(c, way) && (way == ToClient || p.requested(c, piece))
}

// hold waits while the way is paused, and for its delay. It tells whether the connection still
// lives.
func (p *Proxy) hold(c *conn, way Direction) bool {
	begin := time.Now()
	for {
		p.mu.Lock()
		changed := p.changed
		paused := p.paused&way != 0
		left := p.delay[way] - time.Since(begin)
		p.mu.Unlock()
		if !paused && left <= 0 {
			return c.done.Err() == nil
		}
		var delayed <-chan time.Time
		if !paused {
			delayed = time.After(left)
		}
		select {
		case <-c.done.Done():
			return false
		case <-changed:
		case <-delayed:
		}
	}
}

// requested notes that the client sends a piece of a request, and decides about the request. It
// tells whether the piece is to be forwarded.
func (p *Proxy) requested(c *conn, piece []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !c.inRequest
	c.inRequest = true
	if p.counts != nil && !p.counts(piece) {
		return true
	}
	if lost, happened := p.decide(theRequest, first); lost {
		p.stats.LostRequests++
		p.cut(c)
		if happened != nil {
			close(happened)
		}
		return false
	}
	if !c.doomed {
		c.doomed, c.happened = p.decide(theReply, first)
	}
	return true
}

// decide tells whether to lose the request or its reply. Chance decides about a request once. The
// caller holds mu.
func (p *Proxy) decide(what int, first bool) (lost bool, happened chan struct{}) {
	l := &p.lose[what]
	if len(l.next) > 0 {
		happened, l.next = l.next[0], l.next[1:]
		return true, happened
	}
	return first && l.probability > 0 && p.rand.Float64() < l.probability, nil
}

// swallowed notes that the server answers, and tells whether the answer is lost and the connection
// therefore over.
func (p *Proxy) swallowed(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.inRequest = false
	if !c.doomed {
		return false
	}
	p.stats.LostReplies++
	p.cut(c)
	return true
}
