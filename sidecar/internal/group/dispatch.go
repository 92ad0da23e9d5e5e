package group

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// dispatch is a group's events on their way to its members. It has the events that were fetched and
// are not settled, each in one of the states of an entry (doc.go draws how they change), and
// assigns them to members. It asks neither the log nor the store nor the roster. The group's mutex
// guards it.
type dispatch struct {
	group   string // as the policy names it
	metrics *telemetry.Group
	memory  *budget.Budget
	bounds  Bounds

	members   members
	divided   bool   // members have partitions of their own
	assignDue bool   // the division of partitions among them may have changed
	rotation  int    // the member that is assigned the next event
	leases    uint64 // of all deliveries so far
	limits    limits
	round     round

	ordered       bool // a member wants key order
	keys          keys
	ids           ids
	ready         []*entry   // and events that have been settled since
	fair          *fairQueue // with fairness the ready events, else nil; new ones come from ready
	timers        timers
	deadLetters   []*entry // to be handed to the dead letter topic by the next turn
	deadLettering int      // events on their way to the dead letter topic
	held          int      // bytes of events
}

// admit takes in a fetched event; passed says that no filter of the group lets it pass.
func (d *dispatch) admit(e *entry, passed bool, now time.Time) {
	if passed {
		e.state, e.rec = settled, nil
		e.part.dirty, e.part.unused = true, false
		e.part.trim()
		return
	}
	d.hold(e.rec.Size())
	d.ids.add(e)
	first := d.keys.add(e)
	switch {
	case e.due.After(now):
		e.state = delayed
		d.timers.set(e, e.due)
	case first || !d.ordered:
		d.makeReady(e)
	}
}

func (d *dispatch) join(m *Member) {
	d.members = append(slices.Clip(d.members), m) // a turn may hold the old list
	d.assignDue = true
	d.order()
}

// leave removes a member, and takes back its events in flight.
func (d *dispatch) leave(m *Member, how Leaving, now time.Time) {
	m.closed, d.assignDue = true, true
	d.members = slices.DeleteFunc(slices.Clone(d.members), func(x *Member) bool { return x == m })
	for _, e := range d.inflight(m) {
		if how == Disconnected && e.sent {
			d.fail(e, tracing.Disconnected, "connection closed", now, 0, m.opts.MaxAttempts)
		} else {
			d.giveBack(e)
		}
	}
	d.order()
}

// inflight returns a member's events in flight, in log order.
func (d *dispatch) inflight(m *Member) []*entry {
	var es []*entry
	for _, e := range d.timers {
		if e.member == m {
			es = append(es, e)
		}
	}
	for _, a := range m.out {
		if a.holds() {
			es = append(es, a.entry)
		}
	}
	slices.SortFunc(es, inLogOrder)
	return es
}

// order begins or ends keeping the order of keys, as members want it.
func (d *dispatch) order() {
	if d.ordered = d.members.ordered(); d.ordered {
		return // assign holds back the later events of a key
	}
	for _, q := range d.keys {
		for e := q.head; e != nil; e = e.next {
			if e.state == waiting {
				d.makeReady(e)
			}
		}
	}
}

func (d *dispatch) makeReady(e *entry) {
	e.state = ready
	d.ready = append(d.ready, e)
}

// hold adds the bytes of a fetched event to those held, or subtracts them.
func (d *dispatch) hold(n int) {
	d.held += n
	d.memory.Take(n)
}

// settle ends an event for the group.
func (d *dispatch) settle(e *entry) {
	id, key := e.rec.ID, e.rec.Key
	d.hold(-e.rec.Size())
	d.detach(e)
	d.ids.remove(e)
	e.state, e.rec, e.process = settled, nil, nil
	e.part.dirty, e.part.unused = true, false
	e.part.trim()
	if head := d.keys.remove(key, e); head != nil && head.state == waiting {
		d.makeReady(head)
	}
	d.wakeSameID(id)
}

// settleID settles the events with an id that are not on their way to the dead letter topic.
func (d *dispatch) settleID(id string) {
	for e := d.ids[id]; e != nil; {
		next := e.sameID
		if e.state != deadLettering {
			d.settle(e)
		}
		e = next
	}
}

// detach takes an event away from its member and its timer.
func (d *dispatch) detach(e *entry) {
	d.timers.unset(e)
	e.process.End(tracing.Revoked, "") // unless it has ended otherwise
	if e.member != nil {
		e.member.count--
		e.member, e.sent = nil, false
	}
}

// wakeSameID releases events that waited because the same id was in flight.
func (d *dispatch) wakeSameID(id string) {
	for e := d.ids[id]; e != nil; e = e.sameID {
		if e.state == doubled {
			d.makeReady(e)
		}
	}
}

// takeBack undoes a member's assignments that were not sent.
func (d *dispatch) takeBack(m *Member) {
	for _, a := range m.out {
		if a.holds() {
			d.giveBack(a.entry)
		}
	}
	m.out = nil
}

// giveBack undoes a delivery without counting it.
func (d *dispatch) giveBack(e *entry) {
	d.detach(e)
	e.attempts--
	e.part.dirty = true
	d.makeReady(e)
	d.wakeSameID(e.rec.ID)
}

// fail ends a delivery that did not lead to an ack. The event is delivered again after wait, or
// goes to the dead letter topic after most attempts.
func (d *dispatch) fail(e *entry, how tracing.Outcome, reason string, now time.Time, wait time.Duration, most int) {
	e.unsure, e.part.dirty = false, true
	if e.attempts >= most {
		how = tracing.DeadLettered
	}
	e.process.End(how, reason)
	d.detach(e)
	e.reason = reason
	if e.attempts < most {
		d.retry(e, now, wait)
		return
	}
	d.deadLetter(e)
	d.wakeSameID(e.rec.ID)
}

// delay takes an event back from its member, to deliver it again after wait at the earliest. The
// delivery counts no attempt.
func (d *dispatch) delay(e *entry, reason string, now time.Time, wait time.Duration) {
	e.process.End(tracing.Nacked, reason)
	d.detach(e)
	e.attempts--
	e.unsure, e.part.dirty, e.reason = false, true, reason
	d.retry(e, now, wait)
}

// retry delivers an event that is no longer in flight again after wait.
func (d *dispatch) retry(e *entry, now time.Time, wait time.Duration) {
	if wait > 0 {
		e.state = delayed
		d.timers.set(e, now.Add(wait))
	} else {
		d.makeReady(e)
	}
	d.wakeSameID(e.rec.ID)
}

// deadLetter sends an event to the dead letter topic; it is settled once it is durable there.
func (d *dispatch) deadLetter(e *entry) {
	e.state = deadLettering
	d.deadLettering++
	d.deadLetters = append(d.deadLetters, e)
}

// expire handles the events whose time has come.
func (d *dispatch) expire(now time.Time) {
	for e := d.timers.expired(now); e != nil; e = d.timers.expired(now) {
		switch e.state {
		case inflight:
			d.fail(e, tracing.Expired, "ack deadline passed", now, 0, e.member.opts.MaxAttempts)
		case delayed:
			d.makeReady(e)
		case deadLettering:
			d.deadLetters = append(d.deadLetters, e)
		}
	}
}

// drop forgets the fetched events of a partition, and returns those that were on their way to the
// dead letter topic. The callers of their nacks are answered after the progress is saved.
func (d *dispatch) drop(p *partition) (dying []*entry) {
	if len(p.entries)+len(p.redrive.entries) == 0 {
		return nil
	}
	for e := range p.all() {
		if e.state == settled {
			continue
		}
		if e.state == deadLettering {
			d.deadLettering--
			p.dirty = true
			dying = append(dying, e)
		}
		d.hold(-e.rec.Size())
		d.detach(e)
		delete(d.keys, e.rec.Key) // all events of a key are in one partition
		d.ids.remove(e)
		e.state = dropped
		d.wakeSameID(e.rec.ID)
	}
	p.forget()
	p.redrive.entries = nil
	of := func(e *entry) bool { return e.part == p }
	d.ready = slices.DeleteFunc(d.ready, of)
	d.deadLetters = slices.DeleteFunc(d.deadLetters, of)
	d.round.stuck = min(d.round.stuck, len(d.ready))
	if d.fair != nil {
		d.fair.drop(p)
	}
	return dying
}

// urgent reports whether assignments or dead letters wait for the next save, and not only acks.
func (d *dispatch) urgent() bool {
	return len(d.deadLetters) > 0 || slices.ContainsFunc(d.members, func(m *Member) bool { return len(m.out) > 0 })
}

// looksAhead reports whether the group fetches more events than members have room for. With
// fairness it does, to find one tenant's events behind any number of another's. It uses at most
// half of the memory of all connections.
func (d *dispatch) looksAhead() bool {
	return d.fair != nil && len(d.members) > 0 && !d.limits.Paused && !d.memory.Scarce()
}

// want is how many events members have room for in addition to the ready ones. If the group looks
// ahead, it is the bound on that.
func (d *dispatch) want() int {
	switch {
	case d.held >= d.bounds.HeldBytes:
		return 0
	case d.looksAhead():
		return d.bounds.Lookahead
	}
	room := 0
	for _, m := range d.members {
		room += m.room()
	}
	waiting := len(d.ready) - d.round.stuck
	if d.fair != nil {
		waiting += d.fair.events
	}
	return min(room, d.room()) - waiting
}

// room is how many more events the group may have in flight here.
func (d *dispatch) room() int {
	if most := d.limits.inflight(); most < math.MaxInt {
		return max(0, most-d.members.inflight())
	}
	return math.MaxInt
}
