package group

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

// Lease names one delivery of a group by this process.
type Lease = dispatch.Lease

// What a Puller may give as the reason that it is blocked.
const (
	BlockedRate       = dispatch.BlockedRate
	BlockedSlowReader = dispatch.BlockedSlowReader
)

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

// notifyPullers tells pullers at the end of a turn that the group has no more for them now.
func (g *Group) notifyPullers() {
	if !g.own.Complete || g.lapsed {
		return
	}
	for _, m := range g.members {
		if m.puller != nil && m.window.Started {
			m.puller.Looked(m.window.Asked)
		}
	}
}

// each locks the group, calls do for each of the n events that find finds, and reports the others
// as stale.
func (g *Group) each(n int, find func(i int) *dispatch.Event, do func(*dispatch.Event)) (stale []bool, found int) {
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

func (g *Group) ackEach(n int, find func(i int) *dispatch.Event, done func(error)) (stale []bool) {
	now := g.cfg.Clock.Now()
	stale, acked := g.each(n, find, func(e *dispatch.Event) { g.ack(e, now) })
	if acked > 0 {
		g.metrics.Acked(acked)
	}
	g.whenDurable(done)
	return stale
}

func (g *Group) nackEach(n int, find func(i int) *dispatch.Event, how wire.Nack, done func(error)) (stale []bool) {
	now, pending := g.cfg.Clock.Now(), &pendingNack{}
	stale, nacked := g.each(n, find, func(e *dispatch.Event) { g.nack(e, how, pending, now) })
	if nacked > 0 {
		g.metrics.Nacked(nacked)
		g.worker.Wake() // also if there is nothing to save
	}
	g.whenDeadLettered(pending, done)
	return stale
}

// extendEach sets the deadlines of events in flight to extend from now.
func (g *Group) extendEach(n int, find func(i int) *dispatch.Event, extend time.Duration) (stale []bool) {
	due := g.cfg.Clock.Now().Add(extend)
	return g.moveEach(n, find, func(e *dispatch.Event) { g.dispatch.SetTimer(e, due) })
}

// moveEach changes events in flight with do; the change needs no save.
func (g *Group) moveEach(n int, find func(i int) *dispatch.Event, do func(*dispatch.Event)) (stale []bool) {
	stale, found := g.each(n, find, do)
	g.mu.Unlock()
	if found > 0 {
		g.worker.Wake()
	}
	return stale
}

// under finds the events in flight under leases.
func (g *Group) under(leases []Lease) func(i int) *dispatch.Event {
	return func(i int) *dispatch.Event { return g.dispatch.Leased(leases[i]) }
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
		g.moveEach(len(leases), g.under(leases), g.dispatch.GiveBack)
	}
}

func allStale(leases []Lease) []bool { return slices.Repeat([]bool{true}, len(leases)) }

// Inflight is how many events the member has in flight.
func (m *Member) Inflight() int {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	return m.window.Count
}
