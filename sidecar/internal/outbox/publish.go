package outbox

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/source"
)

const (
	// topicsAtOnce is how many topics of a page are published at the same time.
	topicsAtOnce = 8
	// failedMin and failedMax are how long a document rests after its first failure, and at most.
	failedMin = time.Second
	failedMax = 30 * time.Second
	// maxAttempts is how many times a document may fail.
	maxAttempts = 5
)

// publishPage publishes the documents of a page that are still this drainer's, and returns the
// marks to write.
func (d *Drainer) publishPage(ctx context.Context, page []*entry) []mark {
	usable := d.usable()
	d.rests.restShards(allShards &^ usable)

	var all []mark
	topics := map[string]*run{}
	var order []*run
	for _, e := range page {
		switch {
		case !usable.has(e.shard):
		case e.item.Err != nil:
			all = append(all, mark{e: e, err: e.item.Err, final: true})
		default:
			r := topics[e.topic]
			if r == nil {
				r = &run{d: d, topic: e.topic}
				topics[e.topic] = r
				order = append(order, r)
			}
			r.left = append(r.left, e)
		}
	}
	var group errgroup.Group
	group.SetLimit(topicsAtOnce)
	for _, r := range order {
		group.Go(func() error {
			r.publish(ctx)
			return nil
		})
	}
	_ = group.Wait() // none of them returns one
	for _, r := range order {
		all = append(all, r.marks...)
	}
	return all
}

// run publishes the documents of one topic on a page.
type run struct {
	d     *Drainer
	topic string
	left  []*entry // in order
	marks []mark
}

// publish publishes until every document that is left rests.
func (r *run) publish(ctx context.Context) {
	for ctx.Err() == nil {
		most := source.MaxEvents(r.d.cfg.Publisher, r.topic, r.d.cfg.Limits)
		call := r.nextCall(r.d.paces.allowed(r.topic, most))
		if len(call) == 0 {
			return
		}
		items := make([]wire.PublishItem, len(call))
		for i, e := range call {
			items[i] = e.item
		}
		results, err := source.Publish(ctx, r.d.grace, r.d.cfg.Publisher, items)
		switch {
		case err == nil:
			r.d.paces.widen(r.topic, len(call), most)
			for i, e := range call {
				r.record(e, &results[i])
			}
		case source.VerdictOf(err.Code) == source.Passing:
			r.d.paces.narrow(r.topic, len(call))
			r.rest(err)
		case len(call) > 1:
			// Smaller calls find out which document is refused.
			r.d.paces.narrow(r.topic, len(call))
			r.left = append(call, r.left...)
		default:
			r.record(call[0], &wire.ResultItem{Err: err})
		}
	}
}

// nextCall removes the next call of up to most events from the documents that are left. It drops
// documents that rest or that are no longer this drainer's.
func (r *run) nextCall(most int) (call []*entry) {
	r.d.rests.restShards(allShards &^ r.d.usable())
	call, r.left = source.NextCall(r.left, most, r.d.cfg.Limits.BatchBytes, func(e *entry) (chain string, size int, wanted bool) {
		return e.chain, e.size, !r.d.rests.resting(e)
	})
	return call
}

// record keeps the outcome of one document.
func (r *run) record(e *entry, result *wire.ResultItem) {
	err := result.Err
	if err == nil {
		r.marks = append(r.marks, mark{e: e, receipt: result.Receipt})
		return
	}
	switch verdict := source.VerdictOf(err.Code); {
	case verdict == source.Passing:
		r.rest(err)
	case verdict == source.Final, e.attempts+1 >= maxAttempts:
		r.marks = append(r.marks, mark{e: e, err: err, final: true})
	default:
		r.d.cfg.Observer.Deferred(err.Code)
		r.marks = append(r.marks, mark{e: e, err: err})
		r.d.rests.entry(e, r.d.cfg.Clock.Now().Add(min(failedMin<<min(e.attempts, 10), failedMax)))
	}
}

// rest makes the topic wait after a refusal.
func (r *run) rest(err *wire.Error) {
	r.d.cfg.Observer.Deferred(err.Code)
	r.d.rests.topic(r.topic, err, r.d.cfg.Clock.Now().Add(source.Wait(err)))
}
