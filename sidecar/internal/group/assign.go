package group

import (
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
)

// round is what one assign finds, and its turn goes on by.
type round struct {
	spare   int       // events that the group's limit still lets it have in flight
	starved bool      // for lack of a token of the group's
	takers  int       // members that could have been assigned more
	stuck   int       // ready events that only members without room let pass
	again   bool      // it stopped at a bound of the turn
	paceDue time.Time // when there is a token again for those without; zero: none waits
}

// assign gives ready events to members with room, in rotation, until either
// runs out.
func (g *Group) assign(now time.Time) {
	g.retune(now)
	st := g.cfg.Roster.Standing()
	for _, p := range g.parts {
		p.open = p.delivers(st, now)
	}
	g.round = round{spare: g.room()}
	for _, m := range g.members {
		if m.taker != nil {
			_, m.asked = m.taker.Wants()
		}
		m.free, m.budget, m.halted, m.starved = m.room(), turnBytes, false, false
		if m.free > 0 {
			g.round.takers++
		}
	}
	if g.round.spare == 0 {
		g.round.takers = 0
	}
	if g.backlog.fair != nil {
		g.assignFairly(now)
		return
	}
	kept := 0
	for i := 0; i < len(g.backlog.ready); i++ { // settling one event can make others ready
		if g.round.takers == 0 {
			kept += copy(g.backlog.ready[kept:], g.backlog.ready[i:])
			break
		}
		if e := g.backlog.ready[i]; !g.place(e, now) {
			g.backlog.ready[kept] = e
			kept++
		}
	}
	clear(g.backlog.ready[kept:])
	g.backlog.ready = g.backlog.ready[:kept]
}

// retune applies a changed policy to the group and its members.
func (g *Group) retune(now time.Time) {
	if eff := g.cfg.Policy(g.topic); eff != g.limits.policy {
		g.limits.policy, g.limits.GroupLimits = eff, eff.Groups.Of(g.name)
		for _, m := range g.members {
			m.opts = g.resolve(m.requested)
		}
		g.backlog.share(eff.Delivery.Fairness)
	}
	g.limits.tune(g.parts.owned(), len(g.parts), now)
}

// place finds out what becomes of a ready event. It reports false if the event
// stays ready.
func (g *Group) place(e *entry, now time.Time) bool {
	switch {
	case e.state != ready:
		return true
	case !e.part.open:
		g.round.stuck++
		return false
	case g.backlog.ordered && !g.backlog.keys.first(e):
		e.state = waiting
		return true
	case g.backlog.ids.inflight(e.rec.ID) != nil:
		e.state = doubled
		return true
	case e.outlived(now):
		g.metrics.Expired(1)
		if g.limits.policy.Retention.Expired == policy.ExpiredDeadLetter {
			e.reason = "expired"
			g.backlog.bury(e)
		} else {
			g.backlog.settle(e)
		}
		return true
	}
	for {
		m, fit := g.pick(e)
		switch {
		case fit == unwanted && e.letter != "": // it stays a dead letter until somebody wants it
			g.round.stuck++
			return false
		case fit == unwanted:
			g.backlog.settle(e)
			return true
		case fit == full:
			g.round.stuck++
			return false
		case fit == halted, g.round.starved:
			return false
		case e.exhausted(m.opts.MaxAttempts):
			if e.reason == "" {
				e.reason = "delivery attempts used up"
			}
			g.backlog.bury(e)
			return true
		case g.pace(m, now):
			g.lend(e, m)
			return true
		}
	}
}

// maxUnsure bounds the deliveries beyond the attempts that an event gets whose
// sidecar died each time.
const maxUnsure = 5

// exhausted reports whether the event is not to be delivered any more: nobody
// may be known to have got it as often as it may be delivered, where sidecars
// died while it was on its way.
func (e *entry) exhausted(most int) bool {
	if e.unsure {
		most += maxUnsure
	}
	return e.attempts >= most
}

// outlived reports whether the event's own ttl has passed. Who redrives a dead
// letter wants it all the same.
func (e *entry) outlived(now time.Time) bool {
	return e.rec.TTLMS > 0 && e.letter == "" && now.UnixMilli()-e.rec.AcceptedAt > e.rec.TTLMS
}

// fit is how well members and an event go together.
type fit int

const (
	unwanted fit = iota // no member's filter lets the event pass
	full                // only those of members without room do
	halted              // a member has room, but not in this turn
	fits
)

// pick finds the next member in rotation that takes the event now; where
// members have partitions of their own, the one that has this one.
func (g *Group) pick(e *entry) (*Member, fit) {
	if m := e.part.assignee; m != nil && (m.closed || m.opts.Filter.Matches(&e.rec.Event)) {
		switch {
		case m.closed || m.free <= 0: // the next turn divides again
			return nil, full
		case m.halted:
			return nil, halted
		}
		return m, fits
	}
	best := unwanted
	for i := range g.members {
		at := (g.rotation + i) % len(g.members)
		m := g.members[at]
		switch {
		case !m.opts.Filter.Matches(&e.rec.Event):
		case m.free <= 0:
			best = max(best, full)
		case m.halted:
			best = halted
		default:
			g.rotation = at + 1
			return m, fits
		}
	}
	return nil, best
}

// pace takes a delivery token of the group and one of the member's connection;
// without one the group or the member gets no more in this turn.
func (g *Group) pace(m *Member, now time.Time) bool {
	wait, ok := g.limits.take(now)
	if !ok {
		g.round.starved, g.round.takers = true, 0
	} else if wait, ok = m.pacer.Take(now); ok {
		return true
	} else {
		g.limits.refund(now)
		m.halted, m.starved = true, true
		g.round.takers--
	}
	if at := now.Add(wait); g.round.paceDue.IsZero() || at.Before(g.round.paceDue) {
		g.round.paceDue = at
	}
	return false
}

// lend puts an event in flight at a member. It is sent once its attempt is
// saved.
func (g *Group) lend(e *entry, m *Member) {
	g.leases++
	e.state, e.member, e.sent, e.lease = inflight, m, false, g.leases
	e.attempts++
	e.part.dirty = true
	m.count++
	m.out = append(m.out, assignment{e, e.lease})
	m.free--
	g.round.spare--
	if m.budget -= e.rec.Size(); m.budget <= 0 && m.free > 0 {
		m.halted, g.round.again = true, true
	}
	switch {
	case g.round.spare == 0:
		g.round.takers = 0
	case m.free == 0 || m.halted:
		g.round.takers--
	}
}
