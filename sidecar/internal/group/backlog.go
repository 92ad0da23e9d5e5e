package group

import (
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// backlog is the fetched events of a group that are not settled, each in one of
// the states of an entry: doc.go draws how they change. The group's mutex guards
// it.
type backlog struct {
	memory        *budget.Budget
	ordered       bool // some member wants key order
	keys          keys
	ids           ids
	ready         []*entry   // and some that have been settled since
	fair          *fairQueue // has the ready ones where the policy says fairness, to which new ones come by ready; else nil
	timers        timers
	burying       []*entry // to be handed to the dead letter topic by the next turn
	deadLettering int      // events on their way to the dead letter topic
	held          int      // bytes of events
}

// admit takes a fetched event in; passed says that the group is not to get it.
func (b *backlog) admit(e *entry, passed bool, now time.Time) {
	if passed {
		e.state, e.rec = settled, nil
		e.part.dirty, e.part.unused = true, false
		e.part.trim()
		return
	}
	b.hold(e.rec.Size())
	b.ids.add(e)
	first := b.keys.add(e)
	switch {
	case e.due.After(now):
		e.state = delayed
		b.timers.set(e, e.due)
	case first || !b.ordered:
		b.makeReady(e)
	}
}

// order begins or ends to keep the order of keys.
func (b *backlog) order(keep bool) {
	if b.ordered = keep; keep {
		return // assign holds back what is not its key's first
	}
	for _, q := range b.keys {
		for e := q.head; e != nil; e = e.next {
			if e.state == waiting {
				b.makeReady(e)
			}
		}
	}
}

func (b *backlog) makeReady(e *entry) {
	e.state = ready
	b.ready = append(b.ready, e)
}

// hold counts bytes of fetched events in, or out.
func (b *backlog) hold(n int) {
	b.held += n
	b.memory.Take(n)
}

// settle ends an event for the group.
func (b *backlog) settle(e *entry) {
	id, key := e.rec.ID, e.rec.Key
	b.hold(-e.rec.Size())
	b.detach(e)
	b.ids.remove(e)
	e.state, e.rec, e.process = settled, nil, nil
	e.part.dirty, e.part.unused = true, false
	e.part.trim()
	if head := b.keys.remove(key, e); head != nil && head.state == waiting {
		b.makeReady(head)
	}
	b.wakeSameID(id)
}

// detach takes an event away from its member and its timer.
func (b *backlog) detach(e *entry) {
	b.timers.unset(e)
	e.process.End(tracing.Revoked, "") // unless it has ended otherwise
	if e.member != nil {
		e.member.count--
		e.member, e.sent = nil, false
	}
}

// wakeSameID lets events go on that waited for the same id in flight.
func (b *backlog) wakeSameID(id string) {
	for e := b.ids[id]; e != nil; e = e.sameID {
		if e.state == doubled {
			b.makeReady(e)
		}
	}
}

// giveBack undoes a delivery without counting it.
func (b *backlog) giveBack(e *entry) {
	b.detach(e)
	e.attempts--
	e.part.dirty = true
	b.makeReady(e)
	b.wakeSameID(e.rec.ID)
}

// fail ends a delivery that did not lead to an ack: the event comes again after
// wait, or goes to the dead letter topic when it has had as many attempts as
// most.
func (b *backlog) fail(e *entry, how tracing.Outcome, reason string, now time.Time, wait time.Duration, most int) {
	e.unsure, e.part.dirty = false, true
	if e.attempts >= most {
		how = tracing.DeadLettered
	}
	e.process.End(how, reason)
	b.detach(e)
	e.reason = reason
	if e.attempts < most {
		b.retry(e, now, wait)
		return
	}
	b.bury(e)
	b.wakeSameID(e.rec.ID)
}

// retry has an event that is in flight no more come again after wait.
func (b *backlog) retry(e *entry, now time.Time, wait time.Duration) {
	if wait > 0 {
		e.state = delayed
		b.timers.set(e, now.Add(wait))
	} else {
		b.makeReady(e)
	}
	b.wakeSameID(e.rec.ID)
}

// bury sends an event to the dead letter topic; it is settled once it is
// durable there.
func (b *backlog) bury(e *entry) {
	e.state = burying
	b.deadLettering++
	b.burying = append(b.burying, e)
}

// expire moves on whatever is due.
func (b *backlog) expire(now time.Time) {
	for e := b.timers.expired(now); e != nil; e = b.timers.expired(now) {
		switch e.state {
		case inflight:
			b.fail(e, tracing.Expired, "ack deadline passed", now, 0, e.member.opts.MaxAttempts)
		case delayed:
			b.makeReady(e)
		case burying:
			b.burying = append(b.burying, e)
		}
	}
}
