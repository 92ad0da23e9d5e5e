package admit

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// admission is one call of Publish on its way: it gathers the outcomes of its
// events and answers once all are there. Each index is written by one
// goroutine alone.
type admission struct {
	p       *Publisher
	began   time.Time
	toll    toll
	records []*eventlog.Record
	results []wire.ResultItem
	left    atomic.Int64 // outcomes to come, and 1 while Publish runs
	done    func([]wire.ResultItem)

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
	a.finish(1)
}

// Settled takes the log's outcome of one event.
func (a *admission) Settled(i int, out eventlog.Outcome) {
	rec := a.records[i]
	if out.Err != nil {
		a.toll.refund(rec.Topic, len(rec.Payload))
		a.refuse(i, rec.Topic, refusal(out.Err))
		return
	}
	m := a.p.cfg.Metrics.Topic(rec.Topic)
	if out.Duplicate {
		m.Duplicate(1)
	} else {
		m.Published(1)
	}
	m.PublishDuration(time.Since(a.began))
	a.results[i].Receipt = wire.Receipt{
		ID: rec.ID, TS: out.TS, Partition: out.Partition, Seq: out.Seq, Duplicate: out.Duplicate,
	}
	a.finish(1)
}

func (a *admission) finish(n int64) {
	if a.left.Add(-n) == 0 {
		a.done(a.results)
	}
}

// retryStore is when to try again while the store is unavailable: nobody knows
// how long that is, so a pause that neither hammers nor dawdles.
const retryStore = time.Second

// refusal says in the contract's words why an event was not stored.
func refusal(err error) *wire.Error {
	var full *writer.FullError
	if errors.As(err, &full) {
		return &wire.Error{
			Code: wire.Overloaded, RetryAfter: full.RetryAfter,
			Msg: "too many events wait for the log: the " + full.Queue + " queue is full; try again later",
		}
	}
	if c := asConflict(err); c != nil {
		return &wire.Error{Code: wire.Conflict, Msg: c.Error(), Seq: c.Seq}
	}
	if errors.Is(err, eventlog.ErrUnavailable) {
		return &wire.Error{
			Code: wire.StoreUnavailable, RetryAfter: retryStore,
			Msg: "the event log is unavailable; the event may or may not be stored: publish it again with the same id",
		}
	}
	return wire.AsError(err)
}

func asConflict(err error) *eventlog.ConflictError {
	var c *eventlog.ConflictError
	if errors.As(err, &c) {
		return c
	}
	return nil
}

// Refused counts n events that were refused; those that a transport refuses
// before they come here are counted by it.
func (p *Publisher) Refused(topic string, code wire.Code, n int) {
	if wire.CheckTopic(topic) != nil {
		topic = invalidTopic // else anybody could make up labels
	}
	p.cfg.Metrics.Topic(topic).Rejected(code, n)
}

// invalidTopic labels refusals of events whose topic is no topic.
const invalidTopic = "_invalid"

// countRefused counts the items of a call that was refused whole.
func (p *Publisher) countRefused(items []wire.PublishItem, code wire.Code) {
	for i := range items {
		p.Refused(items[i].Event.Topic, code, 1)
	}
}
