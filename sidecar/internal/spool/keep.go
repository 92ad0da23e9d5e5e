package spool

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// keep puts events of a batch into the spool, in order: those at the given indexes, or all, without events that must not
// be spooled. It sets their outcomes; that of an event which already has one, since an append did not answer for it, is
// left where the spool has no room or fails: it may be stored. The caller is inside the topic's gate.
func (l *Log) keep(ctx context.Context, t *topic, batch []*eventlog.Record, outs []eventlog.Outcome, at []int) {
	k := keepCall{log: l, topic: t, outs: outs}
	if at == nil {
		at = make([]int, len(batch))
		for i := range at {
			at[i] = i
		}
	}
	k.admit(batch, at)
	if len(k.recs) == 0 {
		return
	}
	l.account.begin(t)
	l.nudge()
	if _, err := l.cfg.Store.EnsureTopic(ctx, t.name, t.known); err != nil {
		for n := range k.recs {
			k.refuse(n, notKept(err))
			l.account.give(t, 1, int64(k.recs[n].Size()))
		}
		return
	}
	span := l.cfg.Tracing.Spool(ctx, t.name, k.recs)
	answers := l.cfg.Store.Append(ctx, t.name, queue, k.recs)
	span.End(answers)
	k.recordOutcomes(answers)
}

// keepCall is one call of keep.
type keepCall struct {
	log   *Log
	topic *topic
	outs  []eventlog.Outcome

	recs []*eventlog.Record // events that there is room for
	at   []int              // and where they are in the batch
}

// admit counts the events that there is room for.
func (k *keepCall) admit(batch []*eventlog.Record, at []int) {
	most := k.log.cfg.Policies.Load().Topic(k.topic.name).Durability.SpoolMaxBytes
	var full error
	for _, i := range at {
		// The spool fills in the records that it stores, and the log may still read records of an
		// append without an answer.
		r := *batch[i]
		if r.LogOnly {
			if k.outs[i].Err == nil {
				k.outs[i].Err = &AwayError{RetryAfter: k.log.retryFull()}
			}
			continue
		}
		r.Topic, r.Partition, r.Seq = k.topic.name, 0, 0
		if bound := k.log.account.take(k.topic, int64(r.Size()), most, k.log.cfg.MaxBytes); bound != "" {
			if full == nil {
				full = &FullError{Bound: bound, RetryAfter: k.log.retryFull()}
			}
			if k.outs[i].Err == nil {
				k.outs[i].Err = full
			}
			continue
		}
		k.recs = append(k.recs, &r)
		k.at = append(k.at, i)
	}
}

// recordOutcomes turns the spool's answers into the events' outcomes.
func (k *keepCall) recordOutcomes(answers []eventlog.Outcome) {
	for n, a := range answers {
		var conflict *eventlog.ConflictError
		switch {
		case a.Err == nil:
			k.outs[k.at[n]] = eventlog.Outcome{TS: a.TS, Duplicate: a.Duplicate, Spooled: true}
			if !a.Duplicate {
				continue
			}
		case errors.As(a.Err, &conflict):
			k.outs[k.at[n]] = eventlog.Outcome{Err: &eventlog.ConflictError{ID: conflict.ID}} // it has no seq yet
		case diskFull(a.Err) && !unavailable(a.Err):
			k.refuse(n, a.Err)
		default: // it may be in the spool, so it goes on to count
			k.refuse(n, notKept(a.Err))
			continue
		}
		k.log.account.give(k.topic, 1, int64(k.recs[n].Size()))
	}
}

// notKept is why the spool did not take an event: for want of room on the disk,
// or else as of a store that may have taken it.
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

// refuse sets the outcome of the n-th of recs, if it has none.
func (k *keepCall) refuse(n int, err error) {
	if out := &k.outs[k.at[n]]; out.Err == nil {
		out.Err = err
	}
}

// retryFull is when there may be room: once a page more is drained, as far as
// anybody can tell.
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
