package group

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// ack settles an event in flight that its member has processed.
func (g *Group) ack(e *entry, now time.Time) {
	id, opts := e.rec.ID, e.member.opts
	g.dispatch.metrics.Latency(now.Sub(time.UnixMilli(e.rec.AcceptedAt)))
	g.saver.settling(e.process.Settle(tracing.Acked, now))
	e.process.End(tracing.Acked, "")
	if e.member.puller != nil { // the puller may ask for more only once this is saved
		g.saver.saveBy(now)
	} else {
		g.saver.saveBy(now.Add(g.cfg.AckLinger))
	}
	g.dispatch.settle(e)
	if opts.ExactlyOnce {
		g.mark(id, now.Add(opts.DedupeTTL))
	}
}

// nack gives back an event that its member could not process, or does not want yet.
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
		g.dispatch.delay(e, reason, now, wait)
		return
	}
	most := e.member.opts.MaxAttempts
	if how.DeadLetter {
		most = 0
		e.nack = pending
		pending.left++
	}
	g.dispatch.fail(e, tracing.Nacked, reason, now, wait, most)
}

// mark remembers that an id is acked, and settles the other events that have it.
func (g *Group) mark(id string, expires time.Time) {
	g.saver.marks[id] = eventlog.Mark{Topic: g.topic, Group: g.name, ID: id, ExpiresAt: expires.UnixMilli()}
	g.dispatch.settleID(id)
}

func (g *Group) appendDeadLetter(e *entry) {
	g.mu.Lock()
	if e.state != deadLettering {
		g.mu.Unlock()
		return
	}
	if st := g.cfg.Roster.Standing(); e.part.life != st.ID || !st.Valid(g.cfg.Clock.Now()) {
		g.dispatch.timers.set(e, g.cfg.Clock.Now().Add(retryAfterFailure)) // until ownership is known
		g.mu.Unlock()
		return
	}
	rec := deadLetter(e, g.name, e.part.since, g.cfg.Clock.Now())
	ctx := e.process.Within(g.cfg.Context)
	g.mu.Unlock()
	g.cfg.DeadLetters.AppendDeadLetter(ctx, rec, func(err error) { g.deadLetterAppended(e, err) })
}

func (g *Group) deadLetterAppended(e *entry, err error) {
	g.mu.Lock()
	if e.state == deadLettering {
		if err == nil {
			g.dispatch.deadLettering--
			g.dispatch.metrics.DeadLettered(1)
			g.dispatch.settle(e)
			g.saver.deadLettered(e, nil)
		} else {
			g.cfg.Logger.Warn("consumer group cannot append a dead letter", "topic", g.topic, "group", g.name, "error", err)
			g.dispatch.timers.set(e, g.cfg.Clock.Now().Add(retryAfterFailure))
		}
	}
	g.mu.Unlock()
	g.worker.Wake()
}
