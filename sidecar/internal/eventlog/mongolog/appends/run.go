package appends

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// appendCalls makes one batch of calls, and answers them.
func (a *Appender) appendCalls(t *topics.Topic, l *lone, calls []*call) {
	b := &batch{Appender: a, topic: t, lone: l, generation: t.Generation(), most: maxInsert, lookup: 1}
	lines := map[int]*line{}
	for _, c := range calls {
		if c.generation != b.generation {
			for _, d := range c.events {
				c.answer(d.index, eventlog.Outcome{Err: errAnotherGeneration})
			}
			continue
		}
		ln := lines[c.p]
		if ln == nil {
			ln = &line{p: c.p}
			lines[c.p] = ln
			b.lines = append(b.lines, ln)
		}
		ln.pending = append(ln.pending, c.events...)
	}
	// The first caller may give up; other callers wait for the batch too.
	ctx, renew, end, err := a.store.BeginSteps(context.WithoutCancel(calls[0].ctx))
	if err != nil {
		b.refuse(Unknown(err))
		return
	}
	defer end()
	b.renew, b.concern = renew, a.concern(t.Name)
	if b.concern.name != concernMajority {
		b.leave()
	}
	err = b.run(ctx)
	if err == nil {
		return
	}
	b.leave()
	refusal := b.unmetConcern(ctx, err)
	switch {
	case errors.Is(err, errAnotherGeneration):
		l.untold = totals{}
		b.refuse(err)
	case refusal != nil:
		a.store.Reached()
		if a.setUnmet(t.Name, refusal.Concern) {
			a.store.Logger.Warn("the store does not meet the topic's write concern; its events are refused",
				"topic", t.Name, "write_concern", refusal.Concern, "error", err)
		}
		b.refuse(refusal)
	default:
		b.refuse(Unknown(a.store.Unavailable(ctx, "append to topic "+t.Name, err)))
	}
}

// run continues until every event has its outcome or another try would not help.
func (b *batch) run(ctx context.Context) error {
	if _, unmet := b.unmet.Load(b.topic.Name); unmet {
		// Events that would be refused again get no seqs.
		if err := b.confirm(ctx); err != nil {
			return err
		}
	}
	for left := b.left(); left > 0; {
		err := b.step(ctx)
		if n := b.left(); n < left {
			left = n
			b.renew()
			b.wait = core.Backoff{}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || core.IsPermanent(err) || isUnmet(err) || errors.Is(err, errAnotherGeneration) {
			return err
		}
		longest := core.LongWait
		if errors.Is(err, core.ErrBehind) {
			longest = core.ShortWait
		}
		if b.wait.Sleep(ctx, b.store.Clock, longest) != nil {
			return err
		}
	}
	return nil
}

// step gets seqs for events that need them, makes one insert, and acts on its result.
func (b *batch) step(ctx context.Context) error {
	if err := b.place(ctx); err != nil {
		return err
	}
	lines, chunk := b.chunk()
	if len(chunk) > 0 && chunk[0].token != 0 {
		return b.move(ctx, lines, chunk)
	}
	sent := core.Now(b.store.Clock)
	stored, failure := b.insert(ctx, chunk)
	if stored > 0 && failure.err != nil && b.store.Sharded() {
		// A mongos that reports a write error does not report that the write concern was not met.
		if err := b.confirmStored(ctx, chunk[stored-1]); err != nil {
			return err
		}
	}
	for i, d := range chunk[:stored] {
		b.accept(lines[i], d)
		if lines[i].lone {
			b.lone.since = sent
		}
		if d.call != nil { // a void does not end a run of repeated publishes
			b.lookup = 1
		}
	}
	if stored == len(chunk) {
		return failure.err
	}
	next := lines[stored]
	switch {
	case failure.duplicate:
		return b.resolve(ctx, next, failure.seqTaken)
	case failure.refused && stored+1 < len(chunk) && failure.whole:
		b.most = max(1, len(chunk)/2) // to find the refused document
		return nil
	case failure.refused:
		d := chunk[stored]
		err := &eventlog.RefusedError{Cause: fmt.Errorf("event %q: %w", d.record.ID, failure.err)}
		b.most = maxInsert
		return b.replace(ctx, next, 0, eventlog.Outcome{Err: err})
	}
	return failure.err
}
