package group

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/follower"
)

// Sink is the connection's side of a subscription.
type Sink interface {
	// Room reports whether the connection takes more deliveries now. After a false the connection
	// calls Wake when it has room again. It must be quick and not call back.
	Room() bool
	// Deliver hands over deliveries in order. It must not block or call back; turnBytes bounds the
	// deliveries of one turn.
	Deliver(ds []Delivery)
}

// Pacer is the connection's delivery bucket.
type Pacer = follower.Pacer

// Delivery is one event for a member. Attempt and AckTimeout are 0 without a group.
type Delivery struct {
	Record     *eventlog.Record
	Attempt    int
	AckTimeout time.Duration
	Lease      Lease
}

// Member is one subscription to a group. Its methods may be called from any goroutine, but not from
// its Sink.
type Member struct {
	group     *Group
	id        string
	sink      Sink
	pacer     Pacer
	requested wire.SubscribeOptions
	// rebalancer is the sink, if the subscription asked for its partitions.
	rebalancer Rebalancer
	puller     Puller // the sink, if it is one

	// send is held while deliveries are handed to the sink, so that none follows after Pause or
	// Close has returned. It is taken before group.mu.
	send sync.Mutex

	// Guarded by group.mu.
	opts    Options
	name    string // unlike those of the group's other members here
	revoked []int  // partitions that were its own before it lost them
	told    bool   // it was told of partitions, or that it has none
	started bool
	paused  bool
	closed  bool
	count   int // in flight
	out     []assignment

	// The turn under way may still assign this.
	free    int
	budget  int    // bytes
	halted  bool   // gets no more in this turn, even with room
	starved bool   // since its rate had no token left
	asked   uint64 // the puller's request when the turn began to assign
}

// assignment is a delivery that has not been sent yet. It counts as long as the entry is still
// under the same lease.
type assignment struct {
	entry *entry
	lease uint64
}

// holds reports whether the delivery is still to be made.
func (a assignment) holds() bool { return a.entry.state == inflight && a.entry.lease == a.lease }

// turnBytes bounds the bytes that one turn hands to one sink. One event always goes.
const turnBytes = 256 << 10

// room is how many events the member could be assigned now.
func (m *Member) room() int {
	if !m.started || m.paused || !m.sink.Room() {
		return 0
	}
	free := m.opts.MaxInflight - m.count
	if m.puller != nil {
		wants, _ := m.puller.Wants()
		free = min(free, wants)
	}
	return max(0, free)
}

// Start lets deliveries begin: the connection calls it once the reply to the subscription is on its
// way.
func (m *Member) Start() {
	m.group.mu.Lock()
	m.started, m.group.dispatch.assignDue = true, true
	m.group.mu.Unlock()
	m.group.worker.Wake()
}

// Wake says that the sink has room again.
func (m *Member) Wake() { m.group.worker.Wake() }

// Pause stops deliveries: none is sent after it has returned. Deadlines still run.
func (m *Member) Pause() {
	m.send.Lock()
	defer m.send.Unlock()
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	m.paused = true
}

// Resume lets deliveries go on.
func (m *Member) Resume() {
	m.group.mu.Lock()
	m.paused = false
	m.group.mu.Unlock()
	m.group.worker.Wake()
}

// Ack settles events that are in flight at this member, and ignores other ids. done is called with
// nil once the progress is durable, or with an error if it cannot be; possibly before Ack returns.
// It must not block. The save may wait for AckLinger.
func (m *Member) Ack(ids []string, done func(error)) {
	m.group.ackEach(len(ids), func(i int) *entry { return m.holding(ids[i]) }, done)
}

// Nack gives events back that this member could not process; it counts as an attempt, unless it
// holds them. done is as with Ack.
func (m *Member) Nack(ids []string, how wire.Nack, done func(error)) {
	m.group.nackEach(len(ids), func(i int) *entry { return m.holding(ids[i]).ifSent() }, how, done)
}

// Extend sets the deadline of an event in flight to extend from now. It reports false if the event
// is not in flight at this member.
func (m *Member) Extend(id string, extend time.Duration) bool {
	return !m.group.extendEach(1, func(int) *entry { return m.holding(id).ifSent() }, extend)[0]
}

// holding finds the event with that id that is in flight at this member, or nil.
func (m *Member) holding(id string) *entry {
	if e := m.group.dispatch.ids.inflight(id); e != nil && e.member == m {
		return e
	}
	return nil
}

// Leaving says how a member goes.
type Leaving int

const (
	// Unsubscribed gives events back without counting an attempt.
	Unsubscribed Leaving = iota
	// Disconnected counts the attempt of every event that was sent.
	Disconnected
)

// Close ends the subscription: events in flight go back to the group, and nothing is delivered
// after it returned.
func (m *Member) Close(how Leaving) {
	m.send.Lock()
	defer m.send.Unlock()
	g := m.group
	defer g.worker.Wake()
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.closed {
		return
	}
	g.dispatch.leave(m, how, g.cfg.Clock.Now())
	if len(g.dispatch.members) == 0 {
		g.cfg.Roster.Leave(eventlog.GroupName{Topic: g.topic, Group: g.name})
	}
	g.balancer.Wake()
}

// flush sends the assigned events that were not taken back meanwhile.
func (m *Member) flush() {
	m.send.Lock()
	defer m.send.Unlock()
	ds := m.deliveries(m.group.cfg.Clock.Now())
	if len(ds) == 0 {
		return
	}
	again := 0
	for _, d := range ds {
		if d.Attempt > 1 {
			again++
		}
	}
	m.group.dispatch.metrics.Delivered(len(ds))
	if again > 0 {
		m.group.dispatch.metrics.Redelivered(again)
	}
	m.sink.Deliver(ds)
}

// deliveries starts the deadlines of the assigned events, and gives back those that the member no
// longer takes, or whose partition no longer delivers.
func (m *Member) deliveries(now time.Time) []Delivery {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.paused || m.closed {
		g.dispatch.takeBack(m)
		return nil
	}
	st := g.cfg.Roster.Standing()
	ds := make([]Delivery, 0, len(m.out))
	for _, a := range m.out {
		switch e := a.entry; {
		case !a.holds():
		case !e.part.delivers(st, now):
			g.dispatch.giveBack(e)
		default:
			e.sent = true
			g.dispatch.timers.set(e, now.Add(m.opts.AckTimeout))
			e.process = g.cfg.Tracing.Process(e.rec, g.name, e.attempts, e.process)
			ds = append(ds, Delivery{Record: e.rec, Attempt: e.attempts, AckTimeout: m.opts.AckTimeout, Lease: Lease{e.part.Index, e.seq, e.lease}})
		}
	}
	m.out = nil
	return ds
}
