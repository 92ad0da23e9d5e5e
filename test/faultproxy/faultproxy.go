// Package faultproxy is a TCP proxy for tests that breaks connections on demand: it refuses, cuts,
// pauses and delays them, and it can lose a request before the server sees it, or the reply to a
// request that the server has carried out. It knows nothing of the protocol that it forwards,
// except that a client waits for the reply to its request before it sends the next one on the same
// connection.
//
// All methods may be called at any time and from any goroutine. A fault holds for the bytes that
// the proxy reads from then on; bytes that it was just writing may still arrive.
package faultproxy

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// Direction is a direction of forwarding, or several.
type Direction uint8

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy forwards connections to a target.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup // the goroutines that accept and that serve connections
	cancel   context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed, and made again, when a fault changes that a goroutine may be waiting in
	conns   map[*conn]struct{}
	refuse  bool
	paused  Direction
	delay   map[Direction]time.Duration
	counts  func(request []byte) bool // which requests CutRequests, CutReplies and their next forms are about
	rand    *rand.Rand
	lose    [losses]loss
	stats   Stats
}

// the part of a request that a fault loses
const (
	theRequest = iota
	theReply
	losses
)

// loss says when one of them is lost.
type loss struct {
	probability float64
	next        []chan struct{} // one for each of the next requests that loses it, closed when that has happened
}

// Stats counts connections and faults.
type Stats struct {
	Connections  int // accepted and not refused
	Refused      int
	Cut          int // connections that a fault ended
	LostRequests int
	LostReplies  int
}

// New starts a proxy in front of target (host:port), without faults. It is closed at the end of the
// test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		target: target, listener: l, cancel: cancel,
		changed: make(chan struct{}),
		conns:   map[*conn]struct{}{},
		delay:   map[Direction]time.Duration{},
	}
	p.Seed(1)
	p.running.Go(func() { p.accept(ctx) })
	t.Cleanup(p.Close)
	return p
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and its connections and waits until all is over.
func (p *Proxy) Close() {
	p.cancel()
	p.Down()
	p.listener.Close() // an error says that it has been closed before
	p.running.Wait()
}

// Refuse makes the proxy reset every new connection, or accept them again. Open connections live
// on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Cut resets all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAll()
}

// Down makes the server look as if it had ended: existing connections are reset, new ones refused.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.cutAll()
}

// Up ends Down and Refuse.
func (p *Proxy) Up() { p.Refuse(false) }

// Pause stops forwarding in the direction, on all connections, until Resume. Nothing is lost, and
// the peers do not notice.
func (p *Proxy) Pause(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused |= d
}

// Resume ends Pause for the direction.
func (p *Proxy) Resume(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused &^= d
	p.announce()
}

// Delay makes every piece of up to 32 KiB wait for that long in the direction; 0 ends it, also for
// pieces that wait.
func (p *Proxy) Delay(d Direction, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []Direction{ToServer, ToClient} {
		if d&one != 0 {
			p.delay[one] = wait
		}
	}
	p.announce()
}

// Seed starts the sequence of decisions of CutRequests and CutReplies again. With the same seed and
// the same order of requests they are the same ones.
func (p *Proxy) Seed(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rand = rand.New(rand.NewPCG(seed, 0))
}

// Only limits the faults below to requests for which match returns true, given a piece of up to 32
// KiB of them; nil is all. Without it a driver's heartbeats count, too. It must be safe to call
// from several goroutines and must not call the proxy.
func (p *Proxy) Only(match func(request []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = match
}

// CutRequests makes the proxy lose requests with the probability: the server never sees them, and
// the connection is reset.
func (p *Proxy) CutRequests(probability float64) { p.setProbability(theRequest, probability) }

// CutReplies makes the proxy lose replies with the probability: the server gets the request and
// carries it out; when it begins to answer, the connection is reset.
func (p *Proxy) CutReplies(probability float64) { p.setProbability(theReply, probability) }

func (p *Proxy) setProbability(what int, probability float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose[what].probability = probability
}

// CutNextRequest loses the next request as CutRequests does, or one more of the next ones if it is
// called again before. The channel is closed when that has happened.
func (p *Proxy) CutNextRequest() (happened <-chan struct{}) { return p.cutNext(theRequest) }

// CutAfterNextReply loses the reply to the next request as CutReplies does, or to one more of the
// next ones if it is called again before. The channel is closed when the reply has been swallowed,
// or can no longer come.
func (p *Proxy) CutAfterNextReply() (happened <-chan struct{}) { return p.cutNext(theReply) }

func (p *Proxy) cutNext(what int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	happened := make(chan struct{})
	p.lose[what].next = append(p.lose[what].next, happened)
	return happened
}

// Heal ends all faults.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.paused, p.lose = false, 0, [losses]loss{}
	clear(p.delay)
	p.announce()
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// announce wakes the goroutines that wait in a fault. The caller holds mu.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// cutAll resets all connections. The caller holds mu.
func (p *Proxy) cutAll() {
	for c := range p.conns {
		p.cut(c)
	}
}

// cut resets one connection, unless it is over. The caller holds mu.
func (p *Proxy) cut(c *conn) {
	if _, ok := p.conns[c]; ok {
		delete(p.conns, c)
		p.stats.Cut++
		c.reset()
	}
}
