package group

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
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
	g.saver.marks[id] = eventlog.Mark{Topic: g.topic, Group: g.name, ID: id, ExpiresAt: expires.UnixMilli()}
	g.dispatch.SettleID(id)
}

func (g *Group) appendDeadLetter(e *dispatch.Event) {
	g.mu.Lock()
	if e.State != dispatch.DeadLettering {
		g.mu.Unlock()
		return
	}
	if st := g.cfg.Roster.Standing(); g.parts[e.Partition.Index].own.Life != st.ID || !st.Valid(g.cfg.Clock.Now()) {
		g.dispatch.SetTimer(e, g.cfg.Clock.Now().Add(retryAfterFailure)) // until ownership is known
		g.mu.Unlock()
		return
	}
	rec := deadLetter(e.Record, e.Death(g.name), e.Partition.Since, g.cfg.Clock.Now())
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
			g.cfg.Logger.Warn("consumer group cannot append a dead letter", "topic", g.topic, "group", g.name, "error", err)
			g.dispatch.SetTimer(e, g.cfg.Clock.Now().Add(retryAfterFailure))
		}
	}
	g.mu.Unlock()
	g.worker.Wake()
}
