package group

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// ack settles an event in flight that its member is done with.
func (g *Group) ack(e *entry, now time.Time) {
	id, opts := e.rec.ID, e.member.opts
	g.metrics.Latency(now.Sub(time.UnixMilli(e.rec.AcceptedAt)))
	g.saver.settling(e.process.Settle(tracing.Acked, now))
	e.process.End(tracing.Acked, "")
	if e.member.taker != nil { // which may ask for more only once this is saved
		g.saver.saveBy(now)
	} else {
		g.saver.saveBy(now.Add(g.cfg.AckLinger))
	}
	g.settle(e)
	if opts.ExactlyOnce {
		g.mark(id, now.Add(opts.DedupeTTL))
	}
}

// nack gives an event back that its member could not process, or is not to be
// given yet.
func (g *Group) nack(e *entry, how wire.Nack, pending *pendingNack, now time.Time) {
	reason := how.Reason
	if reason == "" {
		reason = "nacked"
	}
	var wait time.Duration
	if how.DelayMS != nil {
		wait = time.Duration(*how.DelayMS) * time.Millisecond
	} else {
		wait = e.member.opts.pause(e.attempts)
	}
	g.saver.settling(e.process.Settle(tracing.Nacked, now))
	g.saver.saveBy(now)
	if how.Hold {
		e.process.End(tracing.Nacked, reason)
		g.detach(e)
		e.attempts--
		e.unsure, e.part.dirty, e.reason = false, true, reason
		g.retry(e, now, wait)
		return
	}
	most := e.member.opts.MaxAttempts
	if how.DeadLetter {
		most = 0
		e.nack = pending
		pending.left++
	}
	g.fail(e, tracing.Nacked, reason, now, wait, most)
}

// settle ends an event for the group.
func (g *Group) settle(e *entry) {
	id, key := e.rec.ID, e.rec.Key
	g.hold(-e.rec.Size())
	g.detach(e)
	g.ids.remove(e)
	e.state, e.rec, e.process = settled, nil, nil
	e.part.dirty, e.part.unused = true, false
	e.part.trim()
	if head := g.keys.remove(key, e); head != nil && head.state == waiting {
		g.makeReady(head)
	}
	g.wakeSameID(id)
}

// mark remembers that an id is acked, and settles the other events that have
// it, except for those that are on their way to the dead letter topic.
func (g *Group) mark(id string, expires time.Time) {
	g.saver.marks[id] = eventlog.Mark{Topic: g.topic, Group: g.name, ID: id, ExpiresAt: expires.UnixMilli()}
	for e := g.ids[id]; e != nil; {
		next := e.sameID
		if e.state != burying {
			g.settle(e)
		}
		e = next
	}
}

// detach takes an event away from its member and its timer.
func (g *Group) detach(e *entry) {
	g.timers.unset(e)
	e.process.End(tracing.Revoked, "") // unless it has ended otherwise
	if e.member != nil {
		e.member.count--
		e.member, e.sent = nil, false
	}
}

// wakeSameID lets events go on that waited for the same id in flight.
func (g *Group) wakeSameID(id string) {
	for e := g.ids[id]; e != nil; e = e.sameID {
		if e.state == doubled {
			g.makeReady(e)
		}
	}
}

// giveBack undoes a delivery without counting it.
func (g *Group) giveBack(e *entry) {
	g.detach(e)
	e.attempts--
	e.part.dirty = true
	g.makeReady(e)
	g.wakeSameID(e.rec.ID)
}

// fail ends a delivery that did not lead to an ack: the event comes again after
// wait, or goes to the dead letter topic when it has had as many attempts as
// most.
func (g *Group) fail(e *entry, how tracing.Outcome, reason string, now time.Time, wait time.Duration, most int) {
	e.unsure, e.part.dirty = false, true
	if e.attempts >= most {
		how = tracing.DeadLettered
	}
	e.process.End(how, reason)
	g.detach(e)
	e.reason = reason
	if e.attempts < most {
		g.retry(e, now, wait)
		return
	}
	g.bury(e)
	g.wakeSameID(e.rec.ID)
}

// retry has an event that is in flight no more come again after wait.
func (g *Group) retry(e *entry, now time.Time, wait time.Duration) {
	if wait > 0 {
		e.state = delayed
		g.timers.set(e, now.Add(wait))
	} else {
		g.makeReady(e)
	}
	g.wakeSameID(e.rec.ID)
}

// bury sends an event to the dead letter topic; it is settled once it is
// durable there.
func (g *Group) bury(e *entry) {
	e.state = burying
	g.deadLettering++
	g.burying = append(g.burying, e)
}

// dig hands a dead letter over.
func (g *Group) dig(e *entry) {
	g.mu.Lock()
	if e.state != burying {
		g.mu.Unlock()
		return
	}
	if st := g.cfg.Roster.Standing(); e.part.life != st.ID || !st.Valid(g.cfg.Clock.Now()) {
		g.timers.set(e, g.cfg.Clock.Now().Add(retryAfterFailure)) // until it is known whether it still is ours
		g.mu.Unlock()
		return
	}
	rec := deadLetter(e, g.name, e.part.since, g.cfg.Clock.Now())
	ctx := e.process.Within(g.cfg.Context)
	g.mu.Unlock()
	g.cfg.DeadLetters.Bury(ctx, rec, func(err error) { g.buried(e, err) })
}

// buried takes the outcome of dig.
func (g *Group) buried(e *entry, err error) {
	g.mu.Lock()
	if e.state == burying {
		if err == nil {
			g.deadLettering--
			g.metrics.DeadLettered(1)
			g.settle(e)
			g.deadLettered(e, nil)
		} else {
			g.cfg.Logger.Warn("consumer group cannot bury a dead letter", "topic", g.topic, "group", g.name, "error", err)
			g.timers.set(e, g.cfg.Clock.Now().Add(retryAfterFailure))
		}
	}
	g.mu.Unlock()
	g.worker.wake()
}

// expire moves on whatever is due.
func (g *Group) expire(now time.Time) {
	for e := g.timers.expired(now); e != nil; e = g.timers.expired(now) {
		switch e.state {
		case inflight:
			g.fail(e, tracing.Expired, "ack deadline passed", now, 0, e.member.opts.MaxAttempts)
		case delayed:
			g.makeReady(e)
		case burying:
			g.burying = append(g.burying, e)
		}
	}
}
