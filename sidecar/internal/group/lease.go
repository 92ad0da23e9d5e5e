package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Lease names one delivery of a group by this process: the same event delivered again is under
// another lease. A lease is stale once the delivery has ended (by an ack, its deadline, a seek,
// another sidecar's takeover).
type Lease struct {
	Partition   int
	Seq, Number uint64
}

// Puller is a Sink whose client asks for events. A turn assigns no more events than it wants.
type Puller interface {
	Sink
	// Wants is how many deliveries the client asks for now, and the number of the last time that it
	// asked; the connection calls Wake after that. It must be quick and not call back.
	Wants() (n int, asked uint64)
	// Looked says that the group has delivered all that it could for the requests up to that
	// number. It must be quick and not call back.
	Looked(asked uint64)
	// Blocked says why the client wants nothing: one of the reasons of wire.GroupMember.
	Blocked() string
}

// tellPullers tells pullers at the end of a turn that the group has no more for them now.
func (g *Group) tellPullers() {
	if !g.own.complete || g.lapsed {
		return
	}
	for _, m := range g.dispatch.members {
		if m.puller != nil && m.started {
			m.puller.Looked(m.asked)
		}
	}
}

// leased finds the event in flight under a lease, or nil.
func (ps partitions) leased(l Lease) *entry {
	if l.Partition < 0 || l.Partition >= len(ps) {
		return nil
	}
	p := ps[l.Partition]
	for _, e := range p.redrive.entries {
		if e.state == inflight && e.lease == l.Number {
			return e.ifSent()
		}
	}
	i, found := slices.BinarySearchFunc(p.entries, l.Seq, func(e *entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if !found || p.entries[i].state != inflight || p.entries[i].lease != l.Number {
		return nil
	}
	return p.entries[i].ifSent()
}

// ifSent is the event in flight if it has been sent, else nil.
func (e *entry) ifSent() *entry {
	if e != nil && e.sent {
		return e
	}
	return nil
}

// each locks the group, calls do for each of the n events that find finds, and reports the others
// as stale.
func (g *Group) each(n int, find func(i int) *entry, do func(*entry)) (stale []bool, found int) {
	stale = make([]bool, n)
	g.mu.Lock()
	for i := range stale {
		if e := find(i); e != nil {
			do(e)
			found++
		} else {
			stale[i] = true
		}
	}
	return stale, found
}

func (g *Group) ackEach(n int, find func(i int) *entry, done func(error)) (stale []bool) {
	now := g.cfg.Clock.Now()
	stale, acked := g.each(n, find, func(e *entry) { g.ack(e, now) })
	if acked > 0 {
		g.dispatch.metrics.Acked(acked)
	}
	g.whenDurable(done)
	return stale
}

func (g *Group) nackEach(n int, find func(i int) *entry, how wire.Nack, done func(error)) (stale []bool) {
	now, pending := g.cfg.Clock.Now(), &pendingNack{}
	stale, nacked := g.each(n, find, func(e *entry) { g.nack(e, how, pending, now) })
	if nacked > 0 {
		g.dispatch.metrics.Nacked(nacked)
		g.worker.Wake() // also if there is nothing to save
	}
	g.whenDeadLettered(pending, done)
	return stale
}

// extendEach sets the deadlines of events in flight to extend from now.
func (g *Group) extendEach(n int, find func(i int) *entry, extend time.Duration) (stale []bool) {
	due := g.cfg.Clock.Now().Add(extend)
	return g.moveEach(n, find, func(e *entry) { g.dispatch.timers.set(e, due) })
}

// moveEach changes events in flight with do; the change needs no save.
func (g *Group) moveEach(n int, find func(i int) *entry, do func(*entry)) (stale []bool) {
	stale, found := g.each(n, find, do)
	g.mu.Unlock()
	if found > 0 {
		g.worker.Wake()
	}
	return stale
}

// under finds the events in flight under leases.
func (g *Group) under(leases []Lease) func(i int) *entry {
	return func(i int) *entry { return g.own.parts.leased(leases[i]) }
}

// AckLeases settles the events in flight under the leases, and reports which leases were stale.
// done is as with Member.Ack.
func (m *Manager) AckLeases(topic, name string, leases []Lease, done func(error)) (stale []bool) {
	if g := m.loaded(topic, name); g != nil {
		return g.ackEach(len(leases), g.under(leases), done)
	}
	done(nil)
	return allStale(leases)
}

// NackLeases is Member.Nack for the events in flight under the leases, and reports which leases
// were stale.
func (m *Manager) NackLeases(topic, name string, leases []Lease, how wire.Nack, done func(error)) (stale []bool) {
	if g := m.loaded(topic, name); g != nil {
		return g.nackEach(len(leases), g.under(leases), how, done)
	}
	done(nil)
	return allStale(leases)
}

// ExtendLeases sets the deadlines of the events in flight under the leases to extend from now, and
// reports which leases were stale.
func (m *Manager) ExtendLeases(topic, name string, leases []Lease, extend time.Duration) (stale []bool) {
	if g := m.loaded(topic, name); g != nil {
		return g.extendEach(len(leases), g.under(leases), extend)
	}
	return allStale(leases)
}

// ReturnLeases gives deliveries back that have not reached their client; they count no attempt.
func (m *Manager) ReturnLeases(topic, name string, leases []Lease) {
	if g := m.loaded(topic, name); g != nil {
		g.moveEach(len(leases), g.under(leases), g.dispatch.giveBack)
	}
}

func allStale(leases []Lease) []bool { return slices.Repeat([]bool{true}, len(leases)) }

// Inflight is how many events the member has in flight.
func (m *Member) Inflight() int {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	return m.count
}
