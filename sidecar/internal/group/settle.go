package group

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// ack settles an event in flight that its member has processed.
func (g *Group) ack(e *dispatch.Event, now time.Time) {
	id, opts := e.Record.ID, e.Member.Opts
	g.metrics.Latency(now.Sub(time.UnixMilli(e.Record.AcceptedAt)))
	g.saver.settling(e.Process.Settle(tracing.Acked, now))
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
func (g *Group) nack(e *dispatch.Event, how wire.Nack, pending *pendingNack, now time.Time) {
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
	g.saver.settling(e.Process.Settle(tracing.Nacked, now))
	g.saver.saveBy(now)
	if how.Hold {
		g.dispatch.Delay(e, reason, now, wait)
		return
	}
	most := e.Member.Opts.MaxAttempts
	if how.DeadLetter {
		most = 0
		g.saver.nacks[e] = pending
		pending.left++
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
	ctx := e.Process.Within(g.cfg.Context)
	g.mu.Unlock()
	g.cfg.DeadLetters.AppendDeadLetter(ctx, rec, func(err error) { g.deadLetterAppended(e, err) })
}

func (g *Group) deadLetterAppended(e *dispatch.Event, err error) {
	g.mu.Lock()
	if e.State == dispatch.DeadLettering {
		if err == nil {
			g.metrics.DeadLettered(1)
			g.dispatch.DeadLettered(e)
			g.saver.deadLettered(e, nil)
		} else {
			g.cfg.Logger.Warn("consumer group cannot append a dead letter", "topic", g.id.Topic, "group", g.id.Group, "error", err)
			g.dispatch.Timers.Set(e, g.cfg.Clock.Now().Add(retryAfterFailure))
		}
	}
	g.mu.Unlock()
	g.worker.Wake()
}

// whenDeadLettered arranges for done to be called once the dead letters of n, and after them the
// progress, are durable; without events it is whenDurable. It is called with mu held and releases
// it.
func (g *Group) whenDeadLettered(n *pendingNack, done func(error)) {
	if n.left == 0 {
		g.whenDurable(done)
		return
	}
	n.done = g.saver.timed(g.saver.traced(done))
	g.mu.Unlock()
}

// each locks the group, calls do for each of the n events that find finds, and reports the others
// as stale.
func (g *Group) each(n int, find func(i int) *dispatch.Event, do func(*dispatch.Event)) (stale []bool, found int) {
	stale = make([]bool, n)
	g.mu.Lock()
	for i := range stale {
		if e := find(i); e != nil {
			do(e)
			found++
		} else {
			stale[i] = true
		}
	}
	return stale, found
}

func (g *Group) ackEach(n int, find func(i int) *dispatch.Event, done func(error)) (stale []bool) {
	now := g.cfg.Clock.Now()
	stale, acked := g.each(n, find, func(e *dispatch.Event) { g.ack(e, now) })
	if acked > 0 {
		g.metrics.Acked(acked)
	}
	g.whenDurable(done)
	return stale
}

func (g *Group) nackEach(n int, find func(i int) *dispatch.Event, how wire.Nack, done func(error)) (stale []bool) {
	now, pending := g.cfg.Clock.Now(), &pendingNack{}
	stale, nacked := g.each(n, find, func(e *dispatch.Event) { g.nack(e, how, pending, now) })
	if nacked > 0 {
		g.metrics.Nacked(nacked)
		g.worker.Wake() // also if there is nothing to save
	}
	g.whenDeadLettered(pending, done)
	return stale
}

// extendEach sets the deadlines of events in flight to extend from now.
func (g *Group) extendEach(n int, find func(i int) *dispatch.Event, extend time.Duration) (stale []bool) {
	due := g.cfg.Clock.Now().Add(extend)
	return g.moveEach(n, find, func(e *dispatch.Event) { g.dispatch.Timers.Set(e, due) })
}

// moveEach changes events in flight with do; the change needs no save.
func (g *Group) moveEach(n int, find func(i int) *dispatch.Event, do func(*dispatch.Event)) (stale []bool) {
	stale, found := g.each(n, find, do)
	g.mu.Unlock()
	if found > 0 {
		g.worker.Wake()
	}
	return stale
}

// under finds the events in flight under leases.
func (g *Group) under(leases []Lease) func(i int) *dispatch.Event {
	return func(i int) *dispatch.Event { return g.dispatch.Leased(leases[i]) }
}
