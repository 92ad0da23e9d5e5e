package group

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// Start lets deliveries begin: the connection calls it once the reply to the subscription is on its
// way.
func (m *Member) Start() {
	m.group.mu.Lock()
	m.window.Started, m.group.dispatch.NeedsDivision = true, true
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

// Failing is why the group may have events that it does not deliver: the log does not answer, or a
// partition of this sidecar cannot be read. It is nil if there is no fault.
func (m *Member) Failing() error {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lapsed {
		return eventlog.ErrUnavailable
	}
	for _, p := range g.parts {
		if p.unread != nil && p.own.State == ownership.Owned {
			return p.unread
		}
	}
	return nil
}

// Ack settles events that are in flight at this member, and ignores other ids. done is called with
// nil once the progress is durable; with an error if that is not known, or, with the code
// stale_lease, if an event was lost before; possibly before Ack returns. It must not block. The save
// may wait for AckLinger.
func (m *Member) Ack(ids []string, done func(error)) {
	m.group.ackEach(len(ids), func(i int) *dispatch.Event { return m.holding(ids[i]) }, settledByID(ids, done))
}

// Nack gives events back that this member could not process; it counts as an attempt, unless it
// holds them. done is as with Ack.
func (m *Member) Nack(ids []string, how wire.Nack, done func(error)) {
	m.group.nackEach(len(ids), func(i int) *dispatch.Event { return m.holding(ids[i]).IfSent() }, how, settledByID(ids, done))
}

// settledByID answers a client that settles by id.
func settledByID(ids []string, done func(error)) Settled {
	return func(_, lost []int, err error) {
		if err == nil && len(lost) > 0 {
			stale := wire.Errorf(wire.StaleLease,
				"the group was moved, or another sidecar took it over, before event %q was settled: it comes again", ids[lost[0]])
			for _, i := range lost {
				stale.IDs = append(stale.IDs, ids[i])
			}
			err = stale
		}
		done(err)
	}
}

// Extend sets the deadline of an event in flight to extend from now. It reports false if the event
// is not in flight at this member.
func (m *Member) Extend(id string, extend time.Duration) bool {
	return len(m.group.extendEach(1, func(int) *dispatch.Event { return m.holding(id).IfSent() }, extend)) == 0
}

// holding finds the event with that id that is in flight at this member, or nil.
func (m *Member) holding(id string) *dispatch.Event {
	return m.group.dispatch.InFlightAt(m.window, id)
}

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
		g.cfg.Roster.Leave(g.id)
		for _, p := range g.parts {
			p.Withdraw() // the next members may come unannounced
		}
	}
	g.balancer.Wake()
}

// flush sends the assigned events that are cleared and were not taken back meanwhile.
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
	m.group.metrics().Delivered(len(ds))
	if again > 0 {
		m.group.metrics().Redelivered(again)
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
		e.Process = g.cfg.Tracing.Process(e.Record, g.id.Group, e.Attempts, e.Process)
		ds[i] = Delivery{
			Record: e.Record, Attempt: e.Attempts, AckTimeout: m.window.Opts.AckTimeout,
			Lease: Lease{Partition: e.Partition.Index, Seq: e.Seq, Number: e.Lease}, Process: e.Process,
		}
	}
	return ds
}

// Inflight is how many events the member has in flight.
func (m *Member) Inflight() int {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	return m.window.Count
}
