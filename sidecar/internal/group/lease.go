package group

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// AckLeases settles the events in flight under the leases, and reports which leases were stale.
// done is as with Member.Ack.
func (m *Manager) AckLeases(topic, name string, leases []Lease, done func(error)) (stale []bool) {
	if g := m.inMemory(topic, name); g != nil {
		return g.ackEach(len(leases), g.under(leases), done)
	}
	done(nil)
	return allStale(leases)
}

// NackLeases is Member.Nack for the events in flight under the leases, and reports which leases
// were stale.
func (m *Manager) NackLeases(topic, name string, leases []Lease, how wire.Nack, done func(error)) (stale []bool) {
	if g := m.inMemory(topic, name); g != nil {
		return g.nackEach(len(leases), g.under(leases), how, done)
	}
	done(nil)
	return allStale(leases)
}

// ExtendLeases sets the deadlines of the events in flight under the leases to extend from now, and
// reports which leases were stale.
func (m *Manager) ExtendLeases(topic, name string, leases []Lease, extend time.Duration) (stale []bool) {
	if g := m.inMemory(topic, name); g != nil {
		return g.extendEach(len(leases), g.under(leases), extend)
	}
	return allStale(leases)
}

// ReturnLeases gives deliveries back that have not reached their client; they count no attempt.
func (m *Manager) ReturnLeases(topic, name string, leases []Lease) {
	if g := m.inMemory(topic, name); g != nil {
		g.moveEach(len(leases), g.under(leases), g.dispatch.GiveBack)
	}
}

func allStale(leases []Lease) []bool { return slices.Repeat([]bool{true}, len(leases)) }
