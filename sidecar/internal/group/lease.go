package group

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// AckLeases settles the events in flight under the leases.
func (m *Manager) AckLeases(topic, name string, leases []Lease, done Settled) {
	if g := m.inMemory(topic, name); g != nil {
		g.ackEach(len(leases), g.under(leases), done)
	} else {
		done(allOf(leases), nil, nil)
	}
}

// NackLeases is Member.Nack for the events in flight under the leases.
func (m *Manager) NackLeases(topic, name string, leases []Lease, how wire.Nack, done Settled) {
	if g := m.inMemory(topic, name); g != nil {
		g.nackEach(len(leases), g.under(leases), how, done)
	} else {
		done(allOf(leases), nil, nil)
	}
}

// ExtendLeases sets the deadlines of the events in flight under the leases to extend from now, and
// returns the indexes of the stale leases.
func (m *Manager) ExtendLeases(topic, name string, leases []Lease, extend time.Duration) (stale []int) {
	if g := m.inMemory(topic, name); g != nil {
		return g.extendEach(len(leases), g.under(leases), extend)
	}
	return allOf(leases)
}

// ReturnLeases gives deliveries back that have not reached their client; they count no attempt.
func (m *Manager) ReturnLeases(topic, name string, leases []Lease) {
	if g := m.inMemory(topic, name); g != nil {
		g.moveEach(len(leases), g.under(leases), g.dispatch.GiveBack)
	}
}

func allOf(leases []Lease) (indexes []int) {
	for i := range leases {
		indexes = append(indexes, i)
	}
	return indexes
}
