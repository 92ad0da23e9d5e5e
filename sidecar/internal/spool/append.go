package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Append implements eventlog.Appender. An Outcome may also be Spooled. The caller has one Append in
// flight per topic and partition, and all events of a key are in one partition.
func (l *Log) Append(ctx context.Context, name string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	t := l.find(name)
	if t == nil {
		return repeat(eventlog.NotFound("topic %q", name), len(batch))
	}
	if int(t.partitions.Load()) == t.known && !t.spooling.Load() && !l.health.away.Load() {
		return l.rescued(ctx, t, batch, l.cfg.Log.Append(ctx, name, partition, batch))
	}
	return l.route(ctx, t, partition, batch)
}

// route appends or spools a batch that cannot go directly into the log.
func (l *Log) route(ctx context.Context, t *topic, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	for waited := false; ; {
		if err := t.gate.Acquire(ctx, 1); err != nil {
			return repeat(gaveUp(err), len(batch))
		}
		// In this order: once the store is away, no append waits any more.
		wait, spooling := l.account.wait(t), t.spooling.Load()
		away := l.health.away.Load()
		refused := away && !l.spools(t.name) || spooling && !l.own.trusted.Load()
		if refused {
			t.gate.Release(1)
			return repeat(l.refusal(), len(batch))
		}
		drains := spooling && !away
		if wait != nil && !waited && drains && !t.letters {
			t.gate.Release(1)
			select {
			case <-wait:
				waited = true
			case <-ctx.Done():
				return repeat(gaveUp(ctx.Err()), len(batch))
			}
			continue
		}
		if away || spooling {
			outs := make([]eventlog.Outcome, len(batch))
			l.keep(ctx, t, batch, outs, nil)
			t.gate.Release(1)
			return outs
		}
		t.gate.Release(1)
		partitions, err := l.ensured(ctx, t)
		switch {
		case err == nil:
			return l.rescued(ctx, t, batch, l.appendAs(ctx, t, partition, partitions, batch))
		case ctx.Err() != nil:
			return repeat(gaveUp(err), len(batch))
		case !unavailable(err):
			return repeat(err, len(batch))
		}
		l.lost(err)
	}
}

// appendAs appends a partition's batch to a log that may have another number of partitions.
func (l *Log) appendAs(ctx context.Context, t *topic, partition, partitions int, batch []*eventlog.Record) []eventlog.Outcome {
	if partitions == t.known {
		return l.cfg.Log.Append(ctx, t.name, partition, batch)
	}
	outs := make([]eventlog.Outcome, len(batch))
	_ = eachPartition(batch, partitions, func(p int, at []int, recs []*eventlog.Record) error {
		answers := l.cfg.Log.Append(ctx, t.name, p, recs)
		for n, i := range at {
			outs[i] = answers[n]
		}
		if p != partition { // the writer announces events of its own partition
			l.announce(t, p, recs, answers)
		}
		return nil // the outcomes have the error
	})
	return outs
}

// parallelAppends bounds the appends at once that one batch is split into.
const parallelAppends = 8

// eachPartition calls do, several at once, for each partition with those of a batch's events that
// belong there, in order, and with their indexes.
func eachPartition(batch []*eventlog.Record, partitions int, do func(p int, at []int, recs []*eventlog.Record) error) error {
	at, recs := make(map[int][]int), make(map[int][]*eventlog.Record)
	for i, r := range batch {
		p := eventlog.PartitionOf(r.Key, r.ID, partitions)
		at[p], recs[p] = append(at[p], i), append(recs[p], r)
	}
	var work errgroup.Group
	work.SetLimit(parallelAppends)
	for p := range at {
		work.Go(func() error { return do(p, at[p], recs[p]) })
	}
	return work.Wait()
}

// announce announces the events that are new in the log.
func (l *Log) announce(t *topic, partition int, recs []*eventlog.Record, outs []eventlog.Outcome) {
	fresh := make([]*eventlog.Record, 0, len(recs))
	for i, out := range outs {
		if out.Err == nil && !out.Duplicate && out.DeliverAt == 0 {
			fresh = append(fresh, recs[i])
		}
	}
	if len(fresh) > 0 {
		l.cfg.Announce(t.name, partition, fresh)
	}
}

// rescued spools the events that the log did not answer for, if their policy allows it.
func (l *Log) rescued(ctx context.Context, t *topic, batch []*eventlog.Record, outs []eventlog.Outcome) []eventlog.Outcome {
	var at []int
	for i := range outs {
		if outs[i].Err != nil && unavailable(outs[i].Err) {
			at = append(at, i)
		}
	}
	if len(at) == 0 || ctx.Err() != nil { // the caller gave up
		return outs
	}
	l.lost(outs[at[0]].Err)
	if !l.spools(t.name) || t.gate.Acquire(ctx, 1) != nil {
		return outs
	}
	defer t.gate.Release(1)
	l.keep(ctx, t, batch, outs, at)
	return outs
}

// repeat is the same refusal for every event of a batch.
func repeat(err error, n int) []eventlog.Outcome {
	return slices.Repeat([]eventlog.Outcome{{Err: err}}, n)
}

// gaveUp says that a batch was not stored because its context ended.
func gaveUp(err error) error {
	if errors.Is(err, eventlog.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: gave up waiting: %w", eventlog.ErrUnavailable, err)
}
