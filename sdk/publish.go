package sluice

import (
	"context"

	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// PublishAsync queues one event, and calls done, which must not be nil, with the answer. It waits
// while the window or the queue is full, until ctx ends. An error means that the event was not
// queued; done is then never called.
//
// Topic and Payload of the event are needed, its other fields are optional; a TS of 0 lets the
// sidecar set the time. Payload must be JSON text, unless Binary is set. The event is encoded
// before PublishAsync returns and is the caller's again.
func (c *Conn) PublishAsync(ctx context.Context, e *wire.Event, done func(wire.Receipt, error), opts ...option.Event) error {
	item := wire.NewPublishItem(e, opts)
	return c.publishAsync(ctx, &item, done)
}

func (c *Conn) publishAsync(ctx context.Context, p *wire.PublishItem, done func(wire.Receipt, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx); err != nil {
		return err
	}
	corr := c.calls.add(call{receipt: done, publish: true})
	c.queue.bytes = codec.AppendPublish(c.queue.bytes, corr, p)
	c.queued()
	return nil
}

// Publish publishes one event and waits for its receipt. When ctx ends first, the event may still
// be accepted.
func (c *Conn) Publish(ctx context.Context, e *wire.Event, opts ...option.Event) (wire.Receipt, error) {
	w := newWaiter[wire.Receipt]()
	if err := c.PublishAsync(ctx, e, w.done, opts...); err != nil {
		return wire.Receipt{}, err
	}
	return w.wait(ctx)
}

// PublishBatchAsync queues a batch as one request and calls done with one result for each event, in
// order, or with the error that refused the batch as a whole. An event without a Topic of its own
// gets topic. Otherwise it works like [Conn.PublishAsync].
func (c *Conn) PublishBatchAsync(ctx context.Context, topic string, events []wire.Event, done func([]wire.ResultItem, error),
	opts ...option.Event) error {
	return c.publishBatchAsync(ctx, topic, len(events), func(i int) wire.PublishItem { return wire.NewPublishItem(&events[i], opts) }, done)
}

// publishBatchAsync is PublishBatchAsync of n events, which item returns.
func (c *Conn) publishBatchAsync(ctx context.Context, topic string, n int, item func(i int) wire.PublishItem,
	done func([]wire.ResultItem, error)) error {
	reply := func(r *codec.Reply, err error) {
		if err == nil && len(r.Results) != n {
			err = wire.Errorf(wire.Internal, "the sidecar gave %d results for a batch of %d", len(r.Results), n)
		}
		if err != nil {
			done(nil, err)
			return
		}
		done(r.Results, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx); err != nil {
		return err
	}
	c.items = c.items[:0]
	for i := range n {
		c.items = append(c.items, item(i))
	}
	corr := c.calls.add(call{reply: reply, publish: true})
	c.queue.bytes = codec.AppendPublishBatch(c.queue.bytes, corr, topic, c.items)
	clear(c.items) // the events are the caller's again
	c.queued()
	return nil
}

// PublishBatch publishes a batch as one request and waits for the results: one for each event, in
// order.
func (c *Conn) PublishBatch(ctx context.Context, topic string, events []wire.Event, opts ...option.Event) ([]wire.ResultItem, error) {
	w := newWaiter[[]wire.ResultItem]()
	if err := c.PublishBatchAsync(ctx, topic, events, w.done, opts...); err != nil {
		return nil, err
	}
	return w.wait(ctx)
}

// admit waits until another publish has room, in the window and in the queue, and counts it. The
// lock is held.
func (c *Conn) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.full() && c.cause == nil {
		if err := c.awaitRoom(ctx); err != nil {
			return err
		}
	}
	if c.cause != nil {
		return c.cause
	}
	c.publishes++
	return nil
}

func (c *Conn) full() bool {
	return c.publishes >= c.window || len(c.queue.bytes) >= queueBytes
}

func (c *Conn) awaitRoom(ctx context.Context) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.room.Broadcast()
		})
		defer stop()
	}
	c.waiting++
	defer func() { c.waiting-- }()
	for c.full() && c.cause == nil && ctx.Err() == nil {
		c.room.Wait()
	}
	return ctx.Err()
}
