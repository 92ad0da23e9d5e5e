package capture

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/source"
)

// errNotMine says that the capture is another sidecar's, or that others may have declared this
// sidecar dead.
var errNotMine = errors.New("this sidecar does not capture now")

// publish returns once each of the events is in the log or refused for good. The events of a key
// get there in their order.
func (c *Capture) publish(ctx context.Context, items []wire.PublishItem) error {
	most := source.MaxEvents(c.cfg.Publisher, c.cfg.Source.Topic, c.cfg.Limits)
	items = slices.DeleteFunc(items, func(it wire.PublishItem) bool {
		if it.Err != nil {
			c.record(&it, it.Err)
		}
		return it.Err != nil
	})
	of := func(it wire.PublishItem) (key string, size int, wanted bool) {
		return it.Event.Key, it.Event.Size(), true
	}
	for size := most; len(items) > 0; {
		if !c.mine() {
			return errNotMine
		}
		call, later := source.NextCall(items, size, c.cfg.Limits.BatchBytes, of)
		results, err := source.Publish(ctx, ctx, c.cfg.Publisher, call)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && source.VerdictOf(err.Code) == source.Final && len(call) > 1 {
			size = 1 // to find out which event is refused
			continue
		}
		var again []wire.PublishItem
		var last *wire.Error
		for i := range call {
			refusal := err
			if err == nil {
				refusal = results[i].Err
			}
			if refusal != nil && source.VerdictOf(refusal.Code) != source.Final {
				again, last = append(again, call[i]), refusal
				continue
			}
			c.record(&call[i], refusal)
		}
		items = append(again, later...)
		if len(again) == 0 {
			size = min(2*size, most)
			continue
		}
		c.cfg.Observer.Deferred(last.Code)
		c.health.defers(last)
		size = max(len(call)/2, 1)
		c.cfg.Clock.Sleep(ctx, source.Wait(last))
	}
	return nil
}

// record counts an event that is in the log or was refused for good. With a conflict the change is
// in the log: its update was looked up again, and its document had changed meanwhile.
func (c *Capture) record(it *wire.PublishItem, err *wire.Error) {
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
