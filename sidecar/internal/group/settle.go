package group

import (
	"cmp"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// ack settles an event in flight that its member has processed; index is its place in the
// settlement.
func (g *Group) ack(x *settlement, index int, e *dispatch.Event, now time.Time) {
	id, opts := e.Record.ID, e.Member.Opts
	g.metrics().Latency(now.Sub(time.UnixMilli(e.Record.AcceptedAt)), now.Sub(e.SentAt))
	x.trace(e.Process.Settle(tracing.Acked, now))
	x.settles(index, g.parts[e.Partition.Index])
	e.Process.End(tracing.Acked, "")
	if e.Member.Pulls() { // the puller may ask for more only once this is saved
		g.saver.saveBy(now)
	} else {
		g.saver.saveBy(now.Add(g.cfg.AckLinger))
	}
	g.dispatch.Settle(e)
	if opts.ExactlyOnce {
		g.mark(id, now.Add(opts.DedupeTTL))
	}
}

// nack gives back an event that its member could not process, or does not want yet.
func (g *Group) nack(x *settlement, index int, e *dispatch.Event, how wire.Nack, now time.Time) {
	reason := how.Reason
	if reason == "" {
		reason = "nacked"
	}
	var wait time.Duration
	if how.DelayMS != nil {
		wait = time.Duration(*how.DelayMS) * time.Millisecond
	} else {
		wait = e.Member.Opts.Pause(e.Attempts)
	}
	x.trace(e.Process.Settle(tracing.Nacked, now))
	g.saver.saveBy(now)
	if how.Hold {
		x.settles(index, g.parts[e.Partition.Index])
		g.dispatch.Delay(e, reason, now, wait)
		return
	}
	most := e.Member.Opts.MaxAttempts
	if how.DeadLetter {
		most = 0
		g.saver.pendingDeadLetters[e] = &pendingDeadLetter{settlement: x, index: index}
		x.deadLetters++
	} else {
		x.settles(index, g.parts[e.Partition.Index])
	}
	g.dispatch.Fail(e, tracing.Nacked, reason, now, wait, most)
}

// mark remembers that an id is acked, and settles the other events that have it.
func (g *Group) mark(id string, expires time.Time) {
	g.saver.marks[id] = eventlog.Mark{Topic: g.id.Topic, Group: g.id.Group, ID: id, ExpiresAt: expires.UnixMilli()}
	g.dispatch.SettleID(id)
}

func (g *Group) appendDeadLetter(e *dispatch.Event) {
	g.mu.Lock()
	if e.State != dispatch.DeadLettering {
		g.mu.Unlock()
		return
	}
	if st := g.cfg.Roster.Standing(); g.parts[e.Partition.Index].own.Life != st.ID || !st.Valid(g.cfg.Clock.Now()) {
		g.dispatch.Timers.Set(e, g.cfg.Clock.Now().Add(retryAfterFailure)) // until ownership is known
		g.mu.Unlock()
		return
	}
	rec := deadletter.Make(e.Record, e.Death(g.id.Group), e.Partition.Since, g.cfg.Clock.Now())
	rec.Topic = cmp.Or(g.deadLetterTopic, rec.Topic)
	ctx := e.Process.Within(g.cfg.Context)
	g.saver.appending(e, true)
	g.mu.Unlock()
	g.cfg.DeadLetters.AppendDeadLetter(ctx, rec, func(err error) { g.deadLetterAppended(e, err) })
}

func (g *Group) deadLetterAppended(e *dispatch.Event, err error) {
	g.mu.Lock()
	g.saver.appending(e, false)
	waits := e.State == dispatch.DeadLettering // else it was dropped meanwhile
	switch {
	case err == nil:
		g.metrics().DeadLettered(1)
		if waits {
			g.dispatch.DeadLettered(e)
		}
		g.saver.deadLettered(e, true)
	case waits:
		g.cfg.Logger.Warn("consumer group cannot append a dead letter", "topic", g.id.Topic, "group", g.id.Group, "error", err)
		g.dispatch.Timers.Set(e, g.cfg.Clock.Now().Add(retryAfterFailure))
	default:
		g.saver.deadLettered(e, false)
	}
	g.mu.Unlock()
	g.worker.Wake()
}

// each locks the group, calls do for each of the n events that find finds, and returns the indexes
// of the others.
func (g *Group) each(n int, find func(i int) *dispatch.Event, do func(i int, e *dispatch.Event)) (absent []int) {
	g.mu.Lock()
	for i := range n {
		if e := find(i); e != nil {
			do(i, e)
		} else {
			absent = append(absent, i)
		}
	}
	return absent
}

func (g *Group) ackEach(n int, find func(i int) *dispatch.Event, done Settled) {
	now, x := g.cfg.Clock.Now(), &settlement{events: make([]settledEvent, 0, n), done: done}
	x.absent = g.each(n, find, func(i int, e *dispatch.Event) { g.ack(x, i, e, now) })
	if acked := n - len(x.absent); acked > 0 {
		g.metrics().Acked(acked)
	}
	g.whenDurable(x)
}

func (g *Group) nackEach(n int, find func(i int) *dispatch.Event, how wire.Nack, done Settled) {
	now, x := g.cfg.Clock.Now(), &settlement{done: done}
	x.absent = g.each(n, find, func(i int, e *dispatch.Event) { g.nack(x, i, e, how, now) })
	if nacked := n - len(x.absent); nacked > 0 {
		g.metrics().Nacked(nacked)
		g.worker.Wake() // also if there is nothing to save
	}
	g.whenDurable(x)
}

// extendEach sets the deadlines of events in flight to extend from now.
func (g *Group) extendEach(n int, find func(i int) *dispatch.Event, extend time.Duration) (stale []int) {
	due := g.cfg.Clock.Now().Add(extend)
	return g.moveEach(n, find, func(e *dispatch.Event) { g.dispatch.Timers.Set(e, due) })
}

// moveEach changes events in flight with do; the change needs no save.
func (g *Group) moveEach(n int, find func(i int) *dispatch.Event, do func(*dispatch.Event)) (stale []int) {
	stale = g.each(n, find, func(_ int, e *dispatch.Event) { do(e) })
	g.mu.Unlock()
	if len(stale) < n {
		g.worker.Wake()
	}
	return stale
}

// under finds the events in flight under leases.
func (g *Group) under(leases []Lease) func(i int) *dispatch.Event {
	return func(i int) *dispatch.Event { return g.dispatch.Leased(leases[i]) }
}
