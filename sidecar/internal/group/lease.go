package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Lease names one delivery of a group by this process: the same event delivered
// again is under another lease. What has ended the delivery (an ack, its
// deadline, a seek, another sidecar's takeover) has made the lease stale.
type Lease struct {
	Partition   int
	Seq, Number uint64
}

// Taker is a Sink whose client asks for events instead of being sent them. A
// turn assigns no more than it wants.
type Taker interface {
	Sink
	// Wants is how many deliveries the client asks for now, and the number of
	// the last time that it asked; the connection calls Wake after that.
	// It must be quick and not call back.
	Wants() (n int, asked uint64)
	// Looked says that the group has delivered all that it could for what was
	// asked up to that number. It must be quick and not call back.
	Looked(asked uint64)
	// Blocked says why the client wants nothing: one of the reasons of
	// MemberInfo.
	Blocked() string
}

// tellTakers ends a turn that leaves nothing to do: what takers get now, they
// have.
func (g *Group) tellTakers() {
	if !g.complete || g.lapsed {
		return
	}
	for _, m := range g.members {
		if m.taker != nil && m.started {
			m.taker.Looked(m.asked)
		}
	}
}

// leased finds what is in flight under a lease, or nil.
func (g *Group) leased(l Lease) *entry {
	if l.Partition < 0 || l.Partition >= len(g.parts) {
		return nil
	}
	for _, e := range g.parts[l.Partition].redrive.entries {
		if e.lease == l.Number && e.state == inflight && e.sent {
			return e
		}
	}
	es := g.parts[l.Partition].entries
	i, found := slices.BinarySearchFunc(es, l.Seq, func(e *entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
	if !found || es[i].state != inflight || !es[i].sent || es[i].lease != l.Number {
		return nil
	}
	return es[i]
}

// eachLeased locks the group, calls do for what is in flight under the leases,
// and tells which were stale.
func (g *Group) eachLeased(leases []Lease, do func(*entry)) (stale []bool, any bool) {
	stale = make([]bool, len(leases))
	g.mu.Lock()
	for i, l := range leases {
		if e := g.leased(l); e != nil {
			do(e)
			any = true
		} else {
			stale[i] = true
		}
	}
	return stale, any
}

func (m *Manager) loaded(topic, name string) *Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[eventlog.GroupName{Topic: topic, Group: name}]
}

// AckLeases settles what is in flight under the leases, and tells which of them
// were stale. done is as with Member.Ack.
func (m *Manager) AckLeases(topic, name string, leases []Lease, done func(error)) (stale []bool) {
	g := m.loaded(topic, name)
	if g == nil {
		done(nil)
		return allStale(leases)
	}
	now := m.cfg.Clock.Now()
	acked := 0
	stale, _ = g.eachLeased(leases, func(e *entry) {
		g.ack(e, now)
		acked++
	})
	if acked > 0 {
		g.metrics.Acked(acked)
	}
	g.whenDurable(done)
	return stale
}

// NackLeases is Member.Nack for what is in flight under the leases, and tells
// which of them were stale.
func (m *Manager) NackLeases(topic, name string, leases []Lease, how wire.Nack, done func(error)) (stale []bool) {
	g := m.loaded(topic, name)
	if g == nil {
		done(nil)
		return allStale(leases)
	}
	now := m.cfg.Clock.Now()
	nacked, pending := 0, &pendingNack{}
	stale, _ = g.eachLeased(leases, func(e *entry) {
		g.nack(e, how, pending, now)
		nacked++
	})
	if nacked > 0 {
		g.metrics.Nacked(nacked)
		g.worker.wake() // also if there is nothing to save
	}
	g.whenDeadLettered(pending, done)
	return stale
}

// ExtendLeases sets the deadlines of what is in flight under the leases to
// extend from now, and tells which of them were stale.
func (m *Manager) ExtendLeases(topic, name string, leases []Lease, extend time.Duration) (stale []bool) {
	g := m.loaded(topic, name)
	if g == nil {
		return allStale(leases)
	}
	due := m.cfg.Clock.Now().Add(extend)
	stale, any := g.eachLeased(leases, func(e *entry) { g.timers.set(e, due) })
	g.mu.Unlock()
	if any {
		g.worker.wake()
	}
	return stale
}

// ReturnLeases gives deliveries back that have not reached their client; they
// count no attempt.
func (m *Manager) ReturnLeases(topic, name string, leases []Lease) {
	g := m.loaded(topic, name)
	if g == nil {
		return
	}
	_, any := g.eachLeased(leases, g.giveBack)
	g.mu.Unlock()
	if any {
		g.worker.wake()
	}
}

func allStale(leases []Lease) []bool {
	stale := make([]bool, len(leases))
	for i := range stale {
		stale[i] = true
	}
	return stale
}

// Inflight is how many events the member has in flight.
func (m *Member) Inflight() int {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	return m.count
}
