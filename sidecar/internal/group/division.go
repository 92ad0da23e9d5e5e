package group

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// Rebalancer is a Sink that learns which partitions its member has for itself, if the subscription
// asked for it. The calls must not block or call back; no event of a partition comes before its
// Assigned, or after its Revoked.
type Rebalancer interface {
	// Assigned adds partitions. The first call may add none.
	Assigned(partitions []int)
	// Revoked removes partitions; their events in flight go to other members.
	Revoked(partitions []int)
}

// share is how one member's partitions change.
type share struct {
	member    *Member
	lost, won []int
}

// divide gives each member partitions of its own if one of them is a Rebalancer, and tells the
// Rebalancers. Only turns assign events, and divide is part of one, so nothing is assigned in
// between.
func (g *Group) divide(now time.Time) {
	g.mu.Lock()
	if !g.dispatch.assignDue || g.stopped {
		g.mu.Unlock()
		return
	}
	g.dispatch.assignDue = false
	to := g.dispatch.divide(g.own.parts, g.cfg.Roster.Standing(), now)
	shares := g.dispatch.shares(g.own.parts, to)
	for i, p := range g.own.parts {
		if p.assignee != to[i] {
			p.assignee = nil
		}
	}
	g.mu.Unlock()
	for _, s := range shares {
		s.member.revoke(s.lost)
	}
	g.mu.Lock()
	for _, s := range shares {
		for _, i := range s.won { // the others may have been revoked meanwhile
			g.own.parts[i].assignee = s.member
		}
	}
	g.mu.Unlock()
	for _, s := range shares {
		s.member.assign(s.won)
	}
}

// divide decides which member has which partition. It uses rendezvous hashing, so that few
// partitions move when members come and go.
func (d *dispatch) divide(parts partitions, st *roster.Standing, now time.Time) []*Member {
	to := make([]*Member, len(parts))
	d.divided = false
	byName := make(map[string]*Member)
	var names []string
	for _, m := range d.members {
		d.divided = d.divided || m.requested.Rebalance
		if m.started {
			names = append(names, m.name)
			byName[m.name] = m
		}
	}
	if !d.divided {
		return to
	}
	for i, p := range parts {
		switch {
		case p.delivers(st, now):
			to[i] = byName[roster.Owner(names, strconv.Itoa(i))]
		case p.own == draining:
			to[i] = p.assignee // until the partition is drained
		}
	}
	return to
}

// shares compares a division with the one in force. When no member asks for a division any more,
// its end takes no partition from a member.
func (d *dispatch) shares(parts partitions, to []*Member) []share {
	shares := make([]share, 0, len(d.members))
	for _, m := range d.members {
		s := share{member: m, lost: m.revoked}
		m.revoked = nil
		for i, p := range parts {
			switch {
			case p.assignee == m && to[i] != m && d.divided:
				s.lost = append(s.lost, i)
			case p.assignee != m && to[i] == m:
				s.won = append(s.won, i)
			}
		}
		slices.Sort(s.lost)
		shares = append(shares, s)
	}
	return shares
}

// revoke takes a partition from the member that has it for itself; the next turn tells it.
func (d *dispatch) revoke(p *partition) {
	d.assignDue = true
	if p.assignee != nil {
		p.assignee.revoked = append(p.assignee.revoked, p.Index)
		p.assignee = nil
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
	closed := m.closed
	g.mu.Unlock()
	if closed {
		return
	}
	if m.rebalancer != nil {
		m.rebalancer.Revoked(lost)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.dispatch.inflight(m) {
		if slices.Contains(lost, e.part.Index) {
			g.dispatch.giveBack(e)
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
	tell := !m.closed && m.started && (len(won) > 0 || !m.told && g.own.complete)
	m.told = m.told || tell
	g.mu.Unlock()
	if tell {
		m.rebalancer.Assigned(won)
	}
}
