package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk"
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
		conn, err := sluice.DialConn(ctx, plan.URL, &sluice.ConnOptions{Token: plan.Token})
		if err != nil {
			c.Close()
			return nil, err
		}
		r := &reader{consumer: c, conn: conn, seen: shared, tally: newTally()}
		if r.seen == nil {
			r.seen = newSeen(plan.Events)
		}
		r.acked = r.settled
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
		_ = r.conn.Close() // Wait has said what was wrong
	}
}

// Subscribe subscribes on every connection. Events may come from then on, and the consumption's
// time begins.
func (c *Consumer) Subscribe(ctx context.Context) error {
	opts := &wire.SubscribeOptions{From: c.plan.From, MaxInflight: &c.plan.Window, MaxBatch: &c.plan.MaxBatch}
	for _, r := range c.readers {
		r.ready = make(chan struct{})
	}
	for _, r := range c.readers {
		sub, err := r.conn.Subscribe(ctx, c.plan.Topic, c.plan.Group, opts, r.deliver)
		r.sub = sub
		close(r.ready)
		if err != nil {
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
			err = errors.Join(err, r.conn.Flush(ctx))
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
			case <-r.conn.Done():
				cancel(r.conn.Err())
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
	conn     *sluice.Conn
	seen     *seen
	acked    func(error) // settled

	ready chan struct{} // closed when sub is set
	sub   *sluice.ConnSubscription
	ids   []string // reused

	mu    sync.Mutex
	tally *Tally
}

// deliver acks deliveries of a group, and counts them: in this order, so that when all are counted
// all acks are queued. Further events belong to other members, and go back to the group.
func (r *reader) deliver(deliveries []wire.Delivery) {
	now := r.consumer.clock.now()
	if r.consumer.began.Load() == 0 {
		r.consumer.began.CompareAndSwap(0, now)
	}
	select {
	case <-r.seen.complete:
		return
	default:
	}
	if r.consumer.plan.Group != "" {
		r.ack(deliveries)
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

func (r *reader) ack(deliveries []wire.Delivery) {
	<-r.ready
	if r.sub == nil {
		return // subscribing failed
	}
	r.ids = r.ids[:0]
	for i := range deliveries {
		r.ids = append(r.ids, deliveries[i].Event.ID)
	}
	if err := r.sub.AckAsync(r.acked, r.ids...); err != nil {
		r.settled(err)
	}
}

// settled counts an ack that was refused; Done and Duplicates are counted by what was seen.
func (r *reader) settled(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.fail(err, 1)
}
