package appends

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// batch holds the events that one batch appends to a topic.
type batch struct {
	*Appender
	topic *topics.Topic
	// generation is the topic's generation that the batch is for.
	generation int64
	concern    concern
	lines      []*line
	renew      func() // begins the timeout again, since the server answers
	most       int    // documents in the next insert
	lookup     int    // ids to look up at the next duplicate
	wait       core.Backoff
}

// appendCalls makes one batch of calls, and answers them.
func (a *Appender) appendCalls(t *topics.Topic, calls []*call) {
	b := &batch{Appender: a, topic: t, generation: t.Generation(), most: maxInsert, lookup: 1}
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
	err = b.run(ctx)
	if err == nil {
		return
	}
	refusal := b.unmetConcern(ctx, err)
	switch {
	case errors.Is(err, errAnotherGeneration):
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

// left is how many documents are not stored yet.
func (b *batch) left() (n int) {
	for _, ln := range b.lines {
		n += len(ln.pending)
	}
	return n
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

// step reserves seqs for events that need them, makes one insert, and acts on its result.
func (b *batch) step(ctx context.Context) error {
	if err := b.reserve(ctx); err != nil {
		return err
	}
	lines, chunk := b.chunk()
	if len(chunk) > 0 && chunk[0].token != 0 {
		return b.move(ctx, lines, chunk)
	}
	stored, failure := b.insert(ctx, chunk)
	if stored > 0 && failure.err != nil && b.store.Sharded() {
		// A mongos that reports a write error does not report that the write concern was not met.
		if err := b.confirmStored(ctx, chunk[stored-1]); err != nil {
			return err
		}
	}
	for i, d := range chunk[:stored] {
		b.accept(lines[i], d)
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

// accept removes a stored document from the front of its line.
func (b *batch) accept(ln *line, d *pending) {
	ln.pending = ln.pending[1:]
	if d.call != nil {
		b.met()
		d.call.answer(d.index, eventlog.Outcome{Partition: ln.p, Seq: d.seq, TS: d.record.TS})
	}
}

// met notes that the store is reachable and meets the topic's write concern.
func (b *batch) met() {
	b.store.Reached()
	if b.setUnmet(b.topic.Name, "") {
		b.store.Logger.Info("the store meets the topic's write concern again", "topic", b.topic.Name)
	}
}

// replace gives the event at a place of its line an outcome, and puts a void there.
func (b *batch) replace(ctx context.Context, ln *line, place int, o eventlog.Outcome) error {
	now, err := b.store.ServerTime(ctx)
	if err != nil {
		return err
	}
	d := ln.pending[place]
	raw, err := bson.Marshal(events.Void(b.topic.Name, ln.p, d.seq, now))
	if err != nil {
		return err
	}
	ln.pending[place] = &pending{raw: raw, seq: d.seq}
	d.call.answer(d.index, o)
	return nil
}

// refuse gives the error to all events that have no outcome. They may be stored.
func (b *batch) refuse(err error) {
	for _, ln := range b.lines {
		for _, d := range ln.pending {
			if d.call != nil {
				d.call.answer(d.index, eventlog.Outcome{Err: err})
			}
		}
		ln.pending = nil
	}
}
