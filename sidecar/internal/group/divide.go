package group

import (
	"slices"
	"time"
)

// divide gives each member partitions of its own if one of them is a Rebalancer, and tells the
// Rebalancers. Only turns assign events, and divide is part of one, so nothing is assigned in
// between.
func (g *Group) divide(now time.Time) {
	g.mu.Lock()
	if !g.dispatch.NeedsDivision || g.stopped {
		g.mu.Unlock()
		return
	}
	g.open(now)
	members, shares := g.members, g.dispatch.Divide()
	g.mu.Unlock()
	for i, m := range members {
		m.revoke(shares[i].Lost)
	}
	g.mu.Lock()
	g.dispatch.HandOver(shares)
	g.mu.Unlock()
	for i, m := range members {
		m.assign(shares[i].Won)
	}
}

// revoke takes partitions from a member and tells it. Their events in flight go back without
// counting.
func (m *Member) revoke(lost []int) {
	if len(lost) == 0 {
		return
	}
	m.send.Lock()
	defer m.send.Unlock()
	g := m.group
	g.mu.Lock()
	closed := m.window.Closed
	g.mu.Unlock()
	if closed {
		return
	}
	if m.rebalancer != nil {
		m.rebalancer.Revoked(lost)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.dispatch.InFlightOf(m.window) {
		if slices.Contains(lost, e.Partition.Index) {
			g.dispatch.GiveBack(e)
		}
	}
}

// assign tells a member which partitions have become its own. That the member has none, assign says
// only once, when it is certain.
func (m *Member) assign(won []int) {
	if m.rebalancer == nil {
		return
	}
	m.send.Lock()
	defer m.send.Unlock()
	g := m.group
	g.mu.Lock()
	none := !m.notified && g.own.Complete
	notify := m.window.Started && !m.window.Closed && (len(won) > 0 || none)
	m.notified = m.notified || notify
	g.mu.Unlock()
	if notify {
		m.rebalancer.Assigned(won)
	}
}
