package dispatch

import (
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
)

// Assign gives ready events to members with room, in rotation, until either runs out.
func (d *Dispatcher) Assign(now time.Time) {
	d.Round = Round{room: d.room()}
	for _, m := range d.members {
		if m.puller != nil {
			_, m.Asked = m.puller.Wants()
		}
		m.free, m.bytesLeft, m.skipped, m.starved = m.room(), TurnBytes, false, false
		if m.free > 0 {
			d.Round.openMembers++
		}
	}
	if d.Round.room == 0 {
		d.Round.openMembers = 0
	}
	if d.fair != nil {
		d.assignFairly(now)
		return
	}
	kept := 0
	for i := 0; i < len(d.ready); i++ { // settling one event can make others ready
		if d.Round.openMembers == 0 {
			kept += copy(d.ready[kept:], d.ready[i:])
			break
		}
		if e := d.ready[i]; !d.place(e, now) {
			d.ready[kept] = e
			kept++
		}
	}
	clear(d.ready[kept:])
	d.ready = d.ready[:kept]
}

// Retune applies a changed policy to the group and its members.
func (d *Dispatcher) Retune(eff *policy.Effective, owns, of int, now time.Time) {
	if eff != d.limits.policy {
		d.limits.policy, d.limits.GroupLimits = eff, eff.Groups.Of(d.cfg.Group)
		for _, m := range d.members {
			m.Opts = d.limits.resolve(m.Requested)
		}
		d.share(eff.Delivery.Fairness)
	}
	d.limits.tune(owns, of, now)
}

// place assigns a ready event, ends it, or lets it wait. It reports false if the event stays ready.
func (d *Dispatcher) place(e *Event, now time.Time) bool {
	switch {
	case e.State != Ready:
		return true
	case !e.Partition.Open:
		d.Round.blocked++
		return false
	case d.ordered && !d.keys.first(e):
		e.State = Waiting
		return true
	case d.ids.inflight(e.Record.ID) != nil:
		e.State = SameID
		return true
	case e.expired(now):
		d.cfg.Expired(1)
		if d.limits.policy.Retention.Expired == policy.ExpiredDeadLetter {
			e.reason = "expired"
			d.deadLetter(e)
		} else {
			d.Settle(e)
		}
		return true
	}
	for {
		m, fit := d.pick(e)
		switch {
		case fit == unwanted && e.Letter != "": // no filter lets it pass: it stays a dead letter
			d.Round.blocked++
			return false
		case fit == unwanted:
			d.Settle(e)
			return true
		case fit == full:
			d.Round.blocked++
			return false
		case fit == halted, d.Round.starved:
			return false
		case e.exhausted(m.Opts.MaxAttempts):
			if e.reason == "" {
				e.reason = "delivery attempts used up"
			}
			d.deadLetter(e)
			return true
		case d.Saving && !e.goesUnsaved():
			return false
		case d.pace(m, now):
			d.lease(e, m)
			return true
		}
	}
}

// maxUnsure is how many deliveries beyond its attempts an event gets if the sidecar died during
// each.
const MaxUnsure = 5

// exhausted reports whether the event's attempts are used up. An event that was on its way when
// sidecars died gets some more, since it may have reached no member.
func (e *Event) exhausted(most int) bool {
	if e.unsure {
		most += MaxUnsure
	}
	return e.Attempts >= most
}

// expired reports whether the event's own ttl has passed. A redriven dead letter is delivered
// nevertheless.
func (e *Event) expired(now time.Time) bool {
	return e.Record.TTLMS > 0 && e.Letter == "" && now.UnixMilli()-e.Record.AcceptedAt > e.Record.TTLMS
}

// fit is whether members can take an event.
type fit int

const (
	unwanted fit = iota // no member's filter lets the event pass
	full                // only the filters of members without room let it pass
	halted              // a member has room, but not in this turn
	fits
)

// pick finds the next member in rotation that can take the event now. If members have partitions of
// their own, it is the member of this partition.
func (d *Dispatcher) pick(e *Event) (*Member, fit) {
	if m := e.Partition.assignee; m != nil && (m.Closed || m.Opts.Filter.Matches(&e.Record.Event)) {
		switch {
		case m.Closed || m.free <= 0: // the next turn divides again
			return nil, full
		case m.skipped:
			return nil, halted
		}
		return m, fits
	}
	best := unwanted
	for i := range d.members {
		at := (d.rotation + i) % len(d.members)
		m := d.members[at]
		switch {
		case !m.Opts.Filter.Matches(&e.Record.Event):
		case m.free <= 0:
			best = max(best, full)
		case m.skipped:
			best = halted
		default:
			d.rotation = at + 1
			return m, fits
		}
	}
	return nil, best
}

// pace takes a delivery token of the group and one of the member's connection; without one the
// group or the member gets no more in this turn.
func (d *Dispatcher) pace(m *Member, now time.Time) bool {
	wait, ok := d.limits.take(now)
	if !ok {
		d.Round.starved, d.Round.openMembers = true, 0
	} else if wait, ok = m.pacer.Take(now); ok {
		return true
	} else {
		d.limits.refund(now)
		m.skipped, m.starved = true, true
		d.Round.openMembers--
	}
	if at := now.Add(wait); d.Round.TokenAt.IsZero() || at.Before(d.Round.TokenAt) {
		d.Round.TokenAt = at
	}
	return false
}

// lease puts an event in flight at a member. It is sent once its attempt is saved, unless it needs no
// save. Then the next save has its attempt, whatever that save is for.
func (d *Dispatcher) lease(e *Event, m *Member) {
	d.leases++
	e.State, e.Member, e.Sent, e.Lease, e.cleared = InFlight, m, false, d.leases, e.goesUnsaved()
	e.Attempts++
	e.Partition.Dirty = e.Partition.Dirty || !e.cleared
	m.Count++
	m.Out = append(m.Out, assignment{e, e.Lease})
	m.free--
	d.Round.room--
	if m.bytesLeft -= e.Record.Size(); m.bytesLeft <= 0 && m.free > 0 {
		m.skipped, d.Round.More = true, true
	}
	switch {
	case d.Round.room == 0:
		d.Round.openMembers = 0
	case m.free == 0 || m.skipped:
		d.Round.openMembers--
	}
}

// share applies the policy's fairness.
func (d *Dispatcher) share(p policy.Fairness) {
	if d.fair != nil && d.fair.policy != p {
		d.ready = append(d.fair.all(), d.ready...)
		d.fair = nil
	}
	if p.By != "" && d.fair == nil {
		d.fair = &fairQueue{policy: p, weights: p.Weights.All(), flows: map[string]*flow{}}
	}
}

// assignFairly gives ready events to members with room, until either runs out. The tenant with the
// lowest start tag comes first.
func (d *Dispatcher) assignFairly(now time.Time) {
	q := d.fair
	for {
		for _, e := range d.ready { // settling one event can make others ready
			if e.State == Ready {
				q.push(e)
			}
		}
		clear(d.ready)
		d.ready = d.ready[:0]
		if d.Round.openMembers == 0 {
			break
		}
		f, e := q.next()
		if e == nil {
			break
		}
		switch before := d.leases; {
		case !d.place(e, now):
			f.queue[f.kept] = e
			f.kept++
		case d.leases > before:
			q.delivered(f)
		}
	}
	q.endTurn()
}
