package outbox

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// topicsAtOnce is how many topics of a page are published at the same time.
	topicsAtOnce = 8
	// restMin is how long a refused topic rests at least.
	restMin = 10 * time.Millisecond
	// restPaused is how long a topic rests whose refusal does not say.
	restPaused = time.Second
	// failedMin and failedMax are how long a document rests that failed:
	// after the first time, and in the end.
	failedMin = time.Second
	failedMax = 30 * time.Second
)

// passing tells that what was refused is to be tried again as it is.
func passing(code wire.Code) bool {
	switch code {
	case wire.RateLimited, wire.Overloaded, wire.StoreUnavailable, wire.TopicPaused:
		return true
	}
	return false
}

// final tells that it would be refused again.
func final(code wire.Code) bool {
	return !passing(code) && code.HTTPStatus() < http.StatusInternalServerError
}

// publishPage publishes what it may of a page, and returns what to note about
// it.
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
			all = append(all, mark{e: e, kind: markError, err: e.item.Err})
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

// run is the documents of one topic on a page, on their way.
type run struct {
	d     *Drainer
	topic string
	left  []*entry // in order
	marks []mark
}

// publish publishes until nothing is left that may be.
func (r *run) publish(ctx context.Context) {
	for ctx.Err() == nil {
		most := r.most()
		call := r.nextCall(r.d.paces.of(r.topic, most))
		if len(call) == 0 {
			return
		}
		results, err := r.d.call(ctx, call)
		switch {
		case err == nil:
			r.d.paces.widen(r.topic, len(call), most)
			for i, e := range call {
				r.record(e, &results[i])
			}
		case passing(err.Code):
			r.d.paces.narrow(r.topic, len(call))
			r.rest(err)
		case len(call) > 1:
			// Which one is to blame shows when they come one by one.
			r.d.paces.narrow(r.topic, len(call))
			r.left = append(call, r.left...)
		default:
			r.record(call[0], &wire.ResultItem{Err: err})
		}
	}
}

// most is the most events of a call.
func (r *run) most() int {
	most := r.d.cfg.Limits.BatchEvents
	if n := r.d.cfg.Publisher.MaxEvents(r.topic); n > 0 {
		most = min(most, n)
	}
	return most
}

// nextCall removes the next call from the documents that are left: up to that many,
// one of a chain unless the Publisher keeps their order. It drops documents that
// rest or that are no longer this drainer's.
func (r *run) nextCall(most int) (call []*entry) {
	r.d.rests.restShards(allShards &^ r.d.usable())
	chains := map[string]bool{}
	left := r.left[:0:0]
	size := 0
	for i, e := range r.left {
		if len(call) == most || size >= r.d.cfg.Limits.BatchBytes {
			left = append(left, r.left[i:]...)
			break
		}
		switch {
		case r.d.rests.resting(e):
		case chains[e.chain]:
			left = append(left, e)
		case len(call) > 0 && size+e.size > r.d.cfg.Limits.BatchBytes:
			left = append(left, r.left[i:]...)
			r.left = left
			return call
		default:
			call = append(call, e)
			size += e.size
			chains[e.chain] = !r.d.cfg.Ordered
		}
	}
	r.left = left
	return call
}

// call publishes some documents and waits for the outcome, for which stopping
// leaves some time.
func (d *Drainer) call(ctx context.Context, entries []*entry) ([]wire.ResultItem, *wire.Error) {
	items := make([]wire.PublishItem, len(entries))
	for i, e := range entries {
		items[i] = e.item
	}
	answer := make(chan []wire.ResultItem, 1)
	if err := d.cfg.Publisher.Publish(ctx, items, func(r []wire.ResultItem) { answer <- r }); err != nil {
		return nil, err
	}
	select {
	case results := <-answer:
		if len(results) != len(entries) {
			return nil, wire.Errorf(wire.Internal, "the publisher gave %d results for %d events", len(results), len(entries))
		}
		return results, nil
	case <-d.grace.Done():
		return nil, wire.Errorf(wire.StoreUnavailable, "the sidecar stopped before the event was stored")
	}
}

// record notes the outcome of one document.
func (r *run) record(e *entry, result *wire.ResultItem) {
	err := result.Err
	switch {
	case err == nil:
		r.marks = append(r.marks, mark{e: e, kind: markDone, receipt: result.Receipt})
	case passing(err.Code):
		r.rest(err)
	case final(err.Code), e.attempts+1 >= r.d.cfg.MaxAttempts:
		r.marks = append(r.marks, mark{e: e, kind: markError, err: err})
	default:
		r.d.cfg.Observer.Deferred(err.Code)
		r.marks = append(r.marks, mark{e: e, kind: markFailed, err: err})
		r.d.rests.entry(e, r.d.cfg.Clock.Now().Add(min(failedMin<<min(e.attempts, 10), failedMax)))
	}
}

// rest makes the topic wait for as long as the refusal says.
func (r *run) rest(err *wire.Error) {
	r.d.cfg.Observer.Deferred(err.Code)
	wait := err.RetryAfter
	if wait == 0 && err.Code == wire.TopicPaused {
		wait = restPaused
	}
	r.d.rests.topic(r.topic, r.d.cfg.Clock.Now().Add(max(wait, restMin)))
}
