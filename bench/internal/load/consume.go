package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Consuming is a load of deliveries.
type Consuming struct {
	URL         string `json:"url"`
	Token       string `json:"-"`
	Topic       string `json:"topic"`
	Group       string `json:"group"` // ""; each connection gets every event, and nothing is acked
	From        string `json:"from"`
	Events      int    `json:"events"` // that are to be consumed, by each connection where there is no group
	Connections int    `json:"connections"`
	Window      int    `json:"window"`    // maxInflight of a connection
	MaxBatch    int    `json:"max_batch"` // events of a frame, and ids of an ack
	// Patience is how long may pass without an event before the rest is given up.
	Patience time.Duration `json:"-"`
	// Open opens a connection to something else than a sidecar; nil: to URL.
	Open func(context.Context, Consuming) (Source, error) `json:"-"`
}

// A Consumer is a load whose connections are open.
type Consumer struct {
	plan    Consuming
	clock   clock
	readers []*reader
	done    atomic.Int64
	began   atomic.Int64 // the clock's time of the first event; 0: none came
}

// NewConsumer opens the connections, and does not subscribe yet.
func NewConsumer(ctx context.Context, plan Consuming) (*Consumer, error) {
	c := &Consumer{plan: plan, clock: newClock()}
	var shared *seen
	if plan.Group != "" {
		shared = newSeen(plan.Events)
	}
	for range plan.Connections {
		source, err := c.plan.open(ctx)
		if err != nil {
			c.Close()
			return nil, err
		}
		r := &reader{consumer: c, source: source, seen: shared, tally: newTally()}
		if r.seen == nil {
			r.seen = newSeen(plan.Events)
		}
		c.readers = append(c.readers, r)
	}
	return c, nil
}

// Done is how many events came so far. It may be called at any time.
func (c *Consumer) Done() int64 { return c.done.Load() }

// SinceFirst is how long ago the first event came; 0 where none did.
func (c *Consumer) SinceFirst() time.Duration {
	if began := c.began.Load(); began != 0 {
		return time.Duration(c.clock.now() - began)
	}
	return 0
}

// Close ends the connections.
func (c *Consumer) Close() {
	for _, r := range c.readers {
		r.source.Close()
	}
}

// Subscribe subscribes on every connection. Events may come from then on, and the consumption's
// time begins.
func (c *Consumer) Subscribe(ctx context.Context) error {
	for _, r := range c.readers {
		if err := r.source.Subscribe(ctx, r); err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
	}
	return nil
}

// Wait waits until all events came and their acks are answered. The tally counts what came also
// where there is an error.
func (c *Consumer) Wait(ctx context.Context) (*Tally, error) {
	err := c.await(ctx)
	if err == nil {
		for _, r := range c.readers {
			err = errors.Join(err, r.source.Flush(ctx))
		}
	}
	tally := newTally()
	counted := map[*seen]bool{}
	for _, r := range c.readers {
		r.mu.Lock()
		tally.merge(r.tally)
		r.mu.Unlock()
		if !counted[r.seen] {
			counted[r.seen] = true
			unique, again := r.seen.count()
			tally.Done += unique
			tally.Duplicates += again
		}
	}
	return tally, err
}

// await waits until every reader, or all together, saw the wanted events.
func (c *Consumer) await(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel(nil)
	for _, r := range c.readers {
		watchers.Go(func() {
			select {
			case <-r.source.Done():
				cancel(r.source.Err())
			case <-ctx.Done():
			}
		})
	}
	for _, r := range c.readers {
		last := c.Done()
		for waiting := true; waiting; {
			select {
			case <-r.seen.complete:
				waiting = false
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(c.plan.Patience):
				now := c.Done()
				if now == last {
					return fmt.Errorf("no event came for %v, after %d", c.plan.Patience, now)
				}
				last = now
			}
		}
	}
	return nil
}

// reader is one connection of a consumer.
type reader struct {
	consumer *Consumer
	source   Source
	seen     *seen

	mu    sync.Mutex
	tally *Tally
}

func (r *reader) Wanted() bool {
	select {
	case <-r.seen.complete:
		return false
	default:
		return true
	}
}

// Deliver counts what came. Its acks are queued by then, so that when all is counted all acks are queued.
func (r *reader) Deliver(deliveries []wire.Delivery) {
	now := r.consumer.clock.now()
	if r.consumer.began.Load() == 0 {
		r.consumer.began.CompareAndSwap(0, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range deliveries {
		e := &deliveries[i].Event
		if !r.seen.add(e.Partition, e.Seq) {
			continue
		}
		if t0, ok := stamped(e.Payload); ok {
			r.tally.Latency.Record(time.Duration(now - t0))
		}
	}
	r.consumer.done.Add(int64(len(deliveries)))
}

// Refused counts an ack that was refused; Done and Duplicates are counted by what was seen.
func (r *reader) Refused(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.fail(err, 1)
}
