package group

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/follower"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
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
	group *Group
	sink  Sink
	// rebalancer is the sink, if the subscription asked for its partitions.
	rebalancer Rebalancer
	puller     Puller // the sink, if it is one

	// send is held while deliveries are handed to the sink, so that none follows after Pause or
	// Close has returned. It is taken before group.mu.
	send sync.Mutex

	// Guarded by group.mu.
	window   *dispatch.Member
	notified bool // of partitions, or that it has none
}

// Start lets deliveries begin: the connection calls it once the reply to the subscription is on its
// way.
func (m *Member) Start() {
	m.group.mu.Lock()
	m.window.Started, m.group.dispatch.AssignDue = true, true
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
	m.window.Paused = true
}

// Resume lets deliveries go on.
func (m *Member) Resume() {
	m.group.mu.Lock()
	m.window.Paused = false
	m.group.mu.Unlock()
	m.group.worker.Wake()
}

// Ack settles events that are in flight at this member, and ignores other ids. done is called with
// nil once the progress is durable, or with an error if it cannot be; possibly before Ack returns.
// It must not block. The save may wait for AckLinger.
func (m *Member) Ack(ids []string, done func(error)) {
	m.group.ackEach(len(ids), func(i int) *dispatch.Event { return m.holding(ids[i]) }, done)
}

// Nack gives events back that this member could not process; it counts as an attempt, unless it
// holds them. done is as with Ack.
func (m *Member) Nack(ids []string, how wire.Nack, done func(error)) {
	m.group.nackEach(len(ids), func(i int) *dispatch.Event { return m.holding(ids[i]).IfSent() }, how, done)
}

// Extend sets the deadline of an event in flight to extend from now. It reports false if the event
// is not in flight at this member.
func (m *Member) Extend(id string, extend time.Duration) bool {
	return !m.group.extendEach(1, func(int) *dispatch.Event { return m.holding(id).IfSent() }, extend)[0]
}

// holding finds the event with that id that is in flight at this member, or nil.
func (m *Member) holding(id string) *dispatch.Event {
	return m.group.dispatch.Holding(m.window, id)
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
	if m.window.Closed {
		return
	}
	g.dispatch.Leave(m.window, how == Disconnected, g.cfg.Clock.Now())
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(x *Member) bool { return x == m })
	if len(g.members) == 0 {
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
	m.group.metrics.Delivered(len(ds))
	if again > 0 {
		m.group.metrics.Redelivered(again)
	}
	m.sink.Deliver(ds)
}

// deliveries starts the deadlines of the assigned events that the member still takes.
func (m *Member) deliveries(now time.Time) []Delivery {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open(now)
	sent := g.dispatch.Send(m.window, now)
	ds := make([]Delivery, len(sent))
	for i, a := range sent {
		e := a.Entry
		e.Process = g.cfg.Tracing.Process(e.Record, g.name, e.Attempts, e.Process)
		ds[i] = Delivery{Record: e.Record, Attempt: e.Attempts, AckTimeout: m.window.Opts.AckTimeout, Lease: Lease{Partition: e.Partition.Index, Seq: e.Seq, Number: e.Lease}}
	}
	return ds
}
