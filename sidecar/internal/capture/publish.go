package capture

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// refusedMin and refusedMax are how long to wait after a refusal that passes and does not say for how long.
	refusedMin = 10 * time.Millisecond
	refusedMax = 5 * time.Second
)

// errNotMine says that another sidecar is to capture, or that this one may be taken for dead.
var errNotMine = errors.New("this sidecar does not capture now")

// final tells that the event itself is refused, and would be again. Any other refusal may pass: a topic that is not there, or that
// may not be published to, is for an operator to mend, and no change may be lost until then.
func final(code wire.Code) bool {
	switch code {
	case wire.BadJSON, wire.BadRequest, wire.Conflict, wire.PayloadTooLarge, wire.SchemaViolation:
		return true
	}
	return false
}

// publish returns once each of the events is in the log or refused for good. Those of a key get there in their order: a call
// has one of a key, since the Publisher may refuse one of a call and take another.
func (c *Capture) publish(ctx context.Context, items []wire.PublishItem) error {
	items = c.sift(items)
	most := c.cfg.Limits.BatchEvents
	if n := c.cfg.Publisher.MaxEvents(c.cfg.Source.Topic); n > 0 {
		most = min(most, n)
	}
	wait := pause.Backoff{First: refusedMin, Most: refusedMax}
	for size := most; len(items) > 0; {
		if !c.mine() {
			return errNotMine
		}
		call, later := take(items, size, c.cfg.Limits.BatchBytes)
		results, err := c.call(ctx, call)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && final(err.Code) && len(call) > 1 {
			size = 1 // which one is to blame shows when they come one by one
			continue
		}
		var again []wire.PublishItem
		refused := err
		for i := range call {
			of := err
			if err == nil {
				of = results[i].Err
			}
			if of != nil && !final(of.Code) {
				again, refused = append(again, call[i]), of
				continue
			}
			c.settle(&call[i], of)
		}
		items = append(again, later...)
		if len(again) == 0 {
			size = min(2*size, most)
			wait.Reset()
			continue
		}
		c.cfg.Observer.Deferred(refused.Code)
		c.health.defers(refused)
		size = max(len(call)/2, 1)
		c.cfg.Clock.Sleep(ctx, max(wait.Step(), refused.RetryAfter))
	}
	return nil
}

// sift leaves out what could not become an event.
func (c *Capture) sift(items []wire.PublishItem) []wire.PublishItem {
	good := items[:0]
	for _, it := range items {
		if it.Err != nil {
			c.settle(&it, it.Err)
			continue
		}
		good = append(good, it)
	}
	return good
}

// settle notes that an event is in the log, or will not be. A conflict is about a change that is there: its update was looked up
// another time, and its document had changed meanwhile.
func (c *Capture) settle(it *wire.PublishItem, err *wire.Error) {
	if err == nil || err.Code == wire.Conflict {
		c.published.Add(1)
		c.cfg.Observer.Published(1)
		return
	}
	c.failed.Add(1)
	c.cfg.Observer.Failed(err.Code)
	op, _ := it.Event.Headers.Get(headerOp)
	c.cfg.Logger.Error("a change cannot be published, and is left out", "op", op, "key", it.Event.Key, "error", err)
}

// take divides events into the next call and what comes later: at most n with at most so many bytes, but one at least, and none
// behind another one of its key.
func take(items []wire.PublishItem, n, bytes int) (call, later []wire.PublishItem) {
	seen := make(map[string]bool, len(items))
	for i := range items {
		e := &items[i].Event
		fits := len(call) == 0 || len(call) < n && e.Size() <= bytes
		if !fits || seen[e.Key] {
			later = append(later, items[i])
		} else {
			call = append(call, items[i])
			bytes -= e.Size()
		}
		seen[e.Key] = true
	}
	return call, later
}

// call publishes some events and waits for the outcome. What becomes of them after ctx has ended is not waited for: they are
// published again under the same ids.
func (c *Capture) call(ctx context.Context, items []wire.PublishItem) ([]wire.ResultItem, *wire.Error) {
	answer := make(chan []wire.ResultItem, 1)
	if err := c.cfg.Publisher.Publish(ctx, items, func(r []wire.ResultItem) { answer <- r }); err != nil {
		return nil, err
	}
	select {
	case results := <-answer:
		if len(results) != len(items) {
			return nil, wire.Errorf(wire.Internal, "the publisher gave %d results for %d events", len(results), len(items))
		}
		return results, nil
	case <-ctx.Done():
		return nil, wire.Errorf(wire.StoreUnavailable, "the sidecar stops")
	}
}
