package spool

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// keep puts events of a batch into the spool, in order: those at the given indexes (nil: all),
// except for events that must not be spooled. It sets their outcomes. If the spool has no room or
// fails, it does not replace the error of an event whose append got no answer: the event may be
// stored. The caller holds a unit of the topic's gate.
func (l *Log) keep(ctx context.Context, t *topic, batch []*eventlog.Record, outs []eventlog.Outcome, at []int) {
	if at == nil {
		at = make([]int, len(batch))
		for i := range at {
			at[i] = i
		}
	}
	refuse := func(i int, err error) {
		if outs[i].Err == nil {
			outs[i].Err = err
		}
	}
	var recs []*eventlog.Record // events that there is room for
	var kept []int              // and where they are in the batch
	var full error
	most := l.cfg.Policies.Load().Topic(t.name).Durability.SpoolMaxBytes
	for _, i := range at {
		// The spool fills in the records that it stores, and the log may still read records of an
		// append without an answer.
		r := *batch[i]
		if r.LogOnly {
			refuse(i, &AwayError{RetryAfter: l.retryFull()})
			continue
		}
		r.Topic, r.Partition, r.Seq = t.name, 0, 0
		if bound := l.account.take(t, int64(r.Size()), most, l.cfg.MaxBytes); bound != "" {
			if full == nil {
				full = &FullError{Bound: bound, RetryAfter: l.retryFull()}
			}
			refuse(i, full)
			continue
		}
		recs, kept = append(recs, &r), append(kept, i)
	}
	if len(recs) == 0 {
		return
	}
	l.account.begin(t)
	l.wake.Set()
	if _, err := l.cfg.Store.EnsureTopic(ctx, t.name, t.known); err != nil {
		for _, i := range kept {
			refuse(i, notKept(err))
		}
		l.account.give(t, len(recs), sizeOf(recs))
		return
	}
	span := l.cfg.Tracing.Spool(ctx, t.name, recs)
	answers := l.cfg.Store.Append(ctx, t.name, queue, recs)
	span.End(answers)
	for n, a := range answers {
		i := kept[n]
		conflict, isConflict := errors.AsType[*eventlog.ConflictError](a.Err)
		switch {
		case a.Err == nil:
			outs[i] = eventlog.Outcome{TS: a.TS, Duplicate: a.Duplicate, Spooled: true}
			if !a.Duplicate {
				continue
			}
		case isConflict:
			outs[i] = eventlog.Outcome{Err: &eventlog.ConflictError{ID: conflict.ID}} // it has no seq yet
		case diskFull(a.Err) && !unavailable(a.Err):
			refuse(i, a.Err)
		default: // it may be in the spool, so it still counts
			refuse(i, notKept(a.Err))
			continue
		}
		l.account.give(t, 1, int64(recs[n].Size()))
	}
}

// notKept is the outcome of an event that the spool could not store: a full disk's error, or
// ErrUnavailable, since it may be stored.
func notKept(err error) error {
	if diskFull(err) {
		return err
	}
	return gaveUp(err)
}

func diskFull(err error) bool {
	_, is := errors.AsType[*eventlog.DiskFullError](err)
	return is
}

// retryFull estimates when there may be room: after the time that the last page took to drain.
func (l *Log) retryFull() time.Duration {
	if l.health.away.Load() {
		return l.retryAway()
	}
	return min(max(time.Duration(l.drain.page.Load()), minRetryFull), maxRetryFull)
}

const (
	minRetryFull = 10 * time.Millisecond
	maxRetryFull = 10 * time.Second
)
