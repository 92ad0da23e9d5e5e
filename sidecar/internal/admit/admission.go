package admit

import (
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// admission is one call of Publish on its way: it gathers the outcomes of its
// events and answers once all are there. Each index is written by one
// goroutine alone; everything else is set before the first event is queued.
type admission struct {
	p        *Publisher
	began    time.Time
	accepted time.Time // when the tokens were taken
	toll     toll
	records  []*eventlog.Record // nil where an event was refused before it became one
	results  []wire.ResultItem
	left     atomic.Int64 // outcomes to come, and 1 while Publish runs
	done     func([]wire.ResultItem)

	// Most calls are of one event: these save its slices' allocations.
	oneRecord [1]*eventlog.Record
	oneResult [1]wire.ResultItem
}

func newAdmission(p *Publisher, n int, done func([]wire.ResultItem)) *admission {
	a := &admission{p: p, began: time.Now(), done: done}
	if n == 1 {
		a.records, a.results = a.oneRecord[:], a.oneResult[:]
	} else {
		a.records, a.results = make([]*eventlog.Record, n), make([]wire.ResultItem, n)
	}
	a.left.Store(int64(n) + 1)
	return a
}

// refuse is the outcome of an event that did not reach the log.
func (a *admission) refuse(i int, topic string, err *wire.Error) {
	a.p.Refused(topic, err.Code, 1)
	a.results[i].Err = err
	a.finish()
}

// undo refuses an event whose tokens were taken.
func (a *admission) undo(i int, cause error) {
	rec := a.records[i]
	a.toll.refund(rec.Topic, len(rec.Payload))
	a.refuse(i, rec.Topic, a.p.refusal(rec.Topic, cause))
}

// Settled takes the log's outcome of one event.
func (a *admission) Settled(i int, out eventlog.Outcome) {
	if out.Err != nil {
		a.undo(i, out.Err)
		return
	}
	a.results[i].Receipt = wire.Receipt{
		ID: a.records[i].ID, TS: out.TS, Partition: out.Partition, Seq: out.Seq,
		Duplicate: out.Duplicate, Spooled: out.Spooled,
	}
	a.finish()
}

// finish notes one outcome; the last one answers.
func (a *admission) finish() {
	if a.left.Add(-1) == 0 {
		a.count()
		a.done(a.results)
	}
}

// count tells the metrics, once for each topic, what the log or the spool took.
func (a *admission) count() {
	took := time.Since(a.began)
	for i := range a.results {
		if r := &a.results[i]; r.Err == nil {
			t := a.toll.topic(a.records[i].Topic)
			t.passed++
			if r.Receipt.Duplicate {
				t.duplicates++
			}
		}
	}
	for i := range a.toll.topics {
		t := &a.toll.topics[i]
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
