package consume

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// puller is the member of a group that serves all pulls with equal opts. Its events in flight
// outlive the requests that got them.
type puller struct {
	key    pullerKey
	groups *group.Manager
	share  *budget.Share  // of the client whose pull has made it
	giving sync.WaitGroup // deliveries without a waiting pull, to be given back

	joining *semaphore.Weighted // held by the request that makes member

	// Guarded by pullers.mu.
	member *group.Member // nil until it is made, then constant
	gone   bool
	users  int // requests
	idle   *time.Timer

	mu       sync.Mutex
	waiting  []*pull // in the order of their arrival
	starving int     // requests that wait for a token of their connection
	asked    uint64  // number of the last pull
	address  string  // of the client of the last pull
	ended    *wire.Error
}

// pull is one request that waits for events.
type pull struct {
	number  uint64
	memory  *budget.Share
	changed pause.Wake // has a value when a field below has changed

	// Guarded by puller.mu.
	wants  int // deliveries that it still wants
	size   int // bytes of the deliveries so far
	got    []group.Delivery
	gotAt  time.Time // when the last delivery came
	looked bool      // the group had no more for it after the last delivery
	ended  *wire.Error
}

// pullBytes bounds the size of an answer, apart from the deliveries of the last turn. Later events
// wait for the next pull. While the memory of its client is used up, an answer has the deliveries of
// one turn.
const pullBytes = 4 << 20

// Room reports whether some pull waits.
func (p *puller) Room() bool {
	n, _ := p.Wants()
	return n > 0
}

// Wants is how many events the pulls wait for.
func (p *puller) Wants() (n int, asked uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.waiting {
		n += q.wants
	}
	return n, p.asked
}

// Blocked says why nothing is delivered.
func (p *puller) Blocked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starving > 0 {
		return group.BlockedRate
	}
	return group.BlockedNotPulling
}

// Address is the address of the client that pulled last.
func (p *puller) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

// Looked tells the pulls that the group has nothing more for them now.
func (p *puller) Looked(asked uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.waiting {
		if q.number <= asked && !q.looked {
			q.looked = true
			q.changed.Set()
		}
	}
}

// Deliver hands events to the pulls: to the first as many as it wants, then to the next. Events
// whose pull is gone go back to the group.
func (p *puller) Deliver(ds []group.Delivery) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.waiting {
		n := min(len(ds), q.wants)
		if n == 0 {
			continue
		}
		q.add(ds[:n], now)
		ds = ds[n:]
	}
	if len(ds) > 0 {
		p.giving.Go(func() { p.giveBack(ds) })
	}
}

// add adds deliveries. It requires puller.mu.
func (q *pull) add(ds []group.Delivery, now time.Time) {
	q.got = append(q.got, ds...)
	before := q.size
	for i := range ds {
		q.size += ds[i].Record.Size()
	}
	q.memory.Take(q.size - before)
	if q.wants -= len(ds); q.size >= pullBytes || q.memory.Full() {
		q.wants = 0
	}
	q.gotAt, q.looked = now, false
	q.changed.Set()
}

// join registers the request of a client, which waits for n events.
func (p *puller) join(n int, caller *session.Session) *pull {
	q := &pull{wants: n, memory: caller.Share(), changed: pause.NewWake()}
	p.mu.Lock()
	p.asked++
	p.address = caller.From
	q.number, q.ended = p.asked, p.ended
	if q.ended != nil {
		q.wants = 0
		q.changed.Set()
	}
	p.waiting = append(p.waiting, q)
	p.mu.Unlock()
	p.member.Wake()
	return q
}

// leave ends the wait of a request, and returns its events and when the last of them came.
func (p *puller) leave(q *pull) ([]group.Delivery, time.Time, *wire.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(x *pull) bool { return x == q })
	q.memory.Give(q.size)
	return q.got, q.gotAt, q.ended
}

// starve counts requests that wait for a token.
func (p *puller) starve(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starving += n
}

// end gives the events in flight back to the group, and refuses the requests that wait.
func (p *puller) end(why *wire.Error) {
	p.member.Close(group.Unsubscribed)
	p.mu.Lock()
	p.ended = why
	for _, q := range p.waiting {
		q.ended, q.wants, q.got = why, 0, nil
		q.changed.Set()
	}
	p.mu.Unlock()
	p.giving.Wait()
}

// giveBack returns deliveries that have not reached a client.
func (p *puller) giveBack(ds []group.Delivery) {
	if len(ds) > 0 {
		p.groups.ReturnLeases(p.key.topic, p.key.group, leasesOf(ds))
	}
}

func leasesOf(ds []group.Delivery) []group.Lease {
	leases := make([]group.Lease, len(ds))
	for i := range ds {
		leases[i] = ds[i].Lease
	}
	return leases
}

// pullerKey identifies a puller; opts is the text of the opts that matter.
type pullerKey struct{ topic, group, opts string }
