package admit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// admission is one call of Publish. It collects the outcomes of its events and answers when all are
// known. One goroutine writes each index; all other fields are set before the first event is
// queued.
type admission struct {
	p           *Publisher
	began       time.Time
	accepted    time.Time // when the tokens were taken
	reservation reservation
	records     []*eventlog.Record // nil if an event was refused before it had a record
	results     []wire.ResultItem
	spans       []*tracing.Send // nil if none is recorded
	left        atomic.Int64    // missing outcomes, plus 1 while Publish runs
	done        func([]wire.ResultItem)

	// Most calls have one event: these fields save allocations of slices.
	oneRecord [1]*eventlog.Record
	oneResult [1]wire.ResultItem
	oneSpan   [1]*tracing.Send
}

func newAdmission(p *Publisher, n int, done func([]wire.ResultItem)) *admission {
	a := &admission{p: p, began: p.cfg.Clock.Now(), done: done}
	if n == 1 {
		a.records, a.results = a.oneRecord[:], a.oneResult[:]
	} else {
		a.records, a.results = make([]*eventlog.Record, n), make([]wire.ResultItem, n)
	}
	a.left.Store(int64(n) + 1)
	return a
}

// trace begins the spans of the events that are recorded. An event without a valid topic has none.
func (a *admission) trace(ctx context.Context, items []wire.PublishItem) {
	t := a.p.cfg.Tracing
	if t == nil {
		return
	}
	for i := range items {
		e := &items[i].Event
		if items[i].Err != nil && codec.CheckTopic(e.Topic) != nil {
			continue
		}
		s := t.Send(ctx, e, a.began)
		if s == nil {
			continue
		}
		if a.spans == nil {
			if a.spans = a.oneSpan[:]; len(items) != 1 {
				a.spans = make([]*tracing.Send, len(items))
			}
		}
		a.spans[i] = s
	}
}

// span returns an event's span; nil: none is recorded.
func (a *admission) span(i int) *tracing.Send {
	if a.spans == nil {
		return nil
	}
	return a.spans[i]
}

// refuse sets the outcome of an event that did not reach the log.
func (a *admission) refuse(i int, topic string, err *wire.Error) {
	id := ""
	if a.records[i] != nil {
		id = a.records[i].ID
	}
	a.span(i).Refused(id, err)
	a.p.Refused(topic, err.Code, 1)
	a.results[i].Err = err
	a.finish()
}

// undo refuses an event whose tokens were taken.
func (a *admission) undo(i int, cause error) {
	rec := a.records[i]
	a.reservation.refund(i, rec.Topic, len(rec.Payload), a.p.cfg.Clock.Now())
	a.refuse(i, rec.Topic, a.p.refusal(rec.Topic, cause))
}

// later reports whether the event is to be scheduled and there is a Scheduler.
func (a *admission) later(i int) bool { return a.records[i].DeliverAt != 0 && a.p.cfg.Scheduler != nil }

// Completed takes the log's outcome of one event.
func (a *admission) Completed(i int, out eventlog.Outcome) {
	if a.later(i) {
		if rec := a.records[i]; out.Err != nil || out.Duplicate || out.Spooled {
			a.p.cfg.Scheduler.Return(rec.Topic, rec.Size())
		} else {
			a.p.cfg.Scheduler.Accepted(rec.Topic, rec.Size(), out.DeliverAt)
		}
	}
	if out.Err != nil {
		a.undo(i, out.Err)
		return
	}
	a.span(i).Accepted(a.records[i].ID, out)
	due := out.DeliverAt
	if !out.Duplicate {
		due = a.results[i].Receipt.DeliverAt // that time may be past
	}
	a.results[i].Receipt = wire.Receipt{
		ID: a.records[i].ID, TS: out.TS, Partition: out.Partition, Seq: out.Seq, DeliverAt: due,
		Duplicate: out.Duplicate, Spooled: out.Spooled,
	}
	a.finish()
}

// finish counts one outcome; the last one answers the call.
func (a *admission) finish() {
	if a.left.Add(-1) == 0 {
		a.count()
		a.done(a.results)
	}
}

// count counts, once for each topic, the events that the log or the spool accepted.
func (a *admission) count() {
	took := a.p.cfg.Clock.Since(a.began)
	for i := range a.results {
		if r := &a.results[i]; r.Err == nil {
			t := a.reservation.topic(a.records[i].Topic)
			t.passed++
			if r.Receipt.Duplicate {
				t.duplicates++
			}
		}
	}
	for i := range a.reservation.topics {
		t := &a.reservation.topics[i]
		if t.passed == 0 {
			continue
		}
		m := a.p.cfg.Metrics.Topic(t.name)
		if stored := t.passed - t.duplicates; stored > 0 {
			m.Published(stored)
		}
		if t.duplicates > 0 {
			m.Duplicate(t.duplicates)
		}
		m.PublishDuration(took)
	}
}
