package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/settings"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Publisher publishes events without waiting for each: many are on their way at a time, on a
// connection of the publisher's own. Its methods may be called by several goroutines at once.
//
// Every event has an id before it is sent for the first time (a UUIDv7, unless it brought one), so
// that sending it again is harmless. It is sent again
//
//   - when the connection broke before the answer came;
//   - when the sidecar asks for time (rate_limited, overloaded, store_unavailable), after the time
//     that it names.
//
// Any other refusal is the event's result, a [*PublishError] of an [*Error].
//
// Events of one (topic, key) are logged in the order in which they were handed over to this
// publisher, also when some are refused or lost on the way: the next one is sent when the one
// before is answered, so that one key has one round trip at a time, and many keys have many. An
// event that fails for good does not stop those behind it. Events without a key have no order among
// each other.
type Publisher struct {
	client *Client
	config settings.Publish
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // of the sender; it holds one

	mu     sync.Mutex
	closed bool
	queue  sendQueue
	count  int           // events without a result
	bytes  int           // their size
	room   chan struct{} // closed, and made again, when count falls; nil: nobody waits
}

const (
	defaultWindowEvents = 10_000
	defaultWindowBytes  = 32 << 20
)

// ErrKeyStopped is matched by the errors of events that were not sent because one of their key
// failed before them: see [option.StopKeyOnError].
var ErrKeyStopped = errors.New("an event of the same key failed before it")

// ErrNil is matched by the errors of arguments that are nil and must not be.
var ErrNil = errors.New("sluice: nil is not allowed here")

// A PublishError is the error of each event that was not published, or whose publishing is not
// known to have succeeded. To publish it again, give it that id: it is stored once.
type PublishError struct {
	Topic, ID string
	Err       error
}

func (e *PublishError) Error() string { return fmt.Sprintf("%v (event %q)", e.Err, e.ID) }

func (e *PublishError) Unwrap() error { return e.Err }

// failed is the error of an event; nil where err is.
func (e *entry) failed(err error) error {
	if err == nil {
		return nil
	}
	return &PublishError{Topic: e.event.Topic, ID: e.event.ID, Err: err}
}

func newPublishConfig(opts []option.Publish) settings.Publish {
	cfg := settings.Publish{Count: defaultWindowEvents, Bytes: defaultWindowBytes, Asked: func(*Error, time.Duration) {}}
	for _, set := range opts {
		if set != nil {
			set(&cfg)
		}
	}
	return cfg
}

// NewPublisher makes a publisher; [Publisher.Close] or the client's Close ends it. Where an option's value
// makes no sense, each publish fails saying so.
func (c *Client) NewPublisher(opts ...option.Publish) *Publisher { return c.newPublisher(opts, nil) }

func (c *Client) newPublisher(opts []option.Publish, first *Conn) *Publisher {
	p := &Publisher{
		client: c, config: newPublishConfig(opts), wake: make(chan struct{}, 1), queue: newSendQueue(),
	}
	p.queue.keyedBatches = p.config.KeyedBatches
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		p.closed = true
		p.cancel()
		return p
	}
	c.pubs[p] = struct{}{}
	l := link{client: c, name: "publishing", serve: p.serve}
	goIn(&p.work, func() { l.run(p.ctx, first) })
	return p
}

// Publish hands over one event and calls done once with its result, unless Publish returns an error
// itself: then nothing was sent. It waits while the window is full, until ctx ends; once the event
// is handed over, ctx has no effect on it.
//
// Topic and Payload of the event are needed, its other fields are optional; a TS of 0 lets the
// sidecar set the time. Payload must be JSON text, unless Binary is set. The event is the caller's
// again when Publish returns.
//
// done must not be nil and must not wait, neither for results nor for room. The results of one key
// come in its order.
func (p *Publisher) Publish(ctx context.Context, e *Event, done func(Receipt, error), opts ...option.Event) error {
	_, err := p.submit(ctx, e, opts, done)
	return err
}

// submit checks an event and queues it.
func (p *Publisher) submit(ctx context.Context, e *Event, opts []option.Event, done func(Receipt, error)) (*entry, error) {
	if e == nil || done == nil {
		return nil, fmt.Errorf("%w: the event, or the callback, of a publish", ErrNil)
	}
	if published := p.client.config.observer.Published; published != nil {
		began, topic, then := time.Now(), e.Topic, done
		done = func(r Receipt, err error) {
			published(topic, time.Since(began), err)
			then(r, err)
		}
	}
	item := wire.NewPublishItem(e, opts)
	next := &entry{event: item.Event, later: item.Later, done: done}
	next.event.Headers = p.client.traced(ctx, slices.Clone(e.Headers))
	if err := cmp.Or(p.config.Bad, next.prepare()); err != nil {
		return nil, next.failed(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, next.failed(err)
		}
		if p.closed {
			return nil, next.failed(ErrClosed)
		}
		if p.count == 0 || p.count < p.config.Count && p.bytes+next.size <= p.config.Bytes {
			break
		}
		if p.room == nil {
			p.room = make(chan struct{})
		}
		room := p.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
		p.mu.Lock()
	}
	p.count++
	p.bytes += next.size
	p.queue.add(next)
	p.nudge()
	return next, nil
}

// publish is Client.Publish.
func (p *Publisher) publish(ctx context.Context, e *Event, opts []option.Event) (Receipt, error) {
	var is Result
	answered := make(chan struct{})
	next, err := p.submit(ctx, e, opts, func(r Receipt, err error) {
		is = Result{r, err}
		close(answered)
	})
	if err != nil {
		return Receipt{}, err
	}
	select {
	case <-answered:
	case <-ctx.Done():
		p.abandon(next, ctx.Err())
		<-answered
	}
	return is.Receipt, is.Err
}

// publishBatch is Client.PublishBatch.
func (p *Publisher) publishBatch(ctx context.Context, events []Event, opts []option.Event) ([]Result, error) {
	results := make([]Result, len(events))
	entries := make([]*entry, len(events))
	var left sync.WaitGroup
	for i := range events {
		left.Add(1)
		var err error
		entries[i], err = p.submit(ctx, &events[i], opts, func(r Receipt, err error) {
			results[i] = Result{r, err}
			left.Done()
		})
		if err != nil {
			results[i].Err = err
			left.Done()
		}
	}
	answered := context.AfterFunc(ctx, func() {
		for _, e := range slices.Backward(entries) { // no event overtakes one of its key that was given up
			if e != nil {
				p.abandon(e, ctx.Err())
			}
		}
	})
	left.Wait()
	answered()
	failed, first := 0, error(nil)
	for i := range results {
		if err := results[i].Err; err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	if failed > 0 {
		return results, fmt.Errorf("%d of %d events failed, the first with: %w", failed, len(events), first)
	}
	return results, nil
}

// Flush waits until every event that was handed over before has its result, or ctx ends.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	last := p.queue.flushed()
	p.mu.Unlock()
	select {
	case <-last:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the publisher: events without a result fail with [ErrClosed]; use [Publisher.Flush]
// before it to wait for them. It must not be called by a callback.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	var over results
	for _, e := range slices.Collect(maps.Keys(p.queue.entries)) {
		p.finish(e, Receipt{}, ErrClosed, &over)
	}
	p.mu.Unlock()
	p.tell(over)
	p.client.mu.Lock()
	delete(p.client.pubs, p)
	p.client.mu.Unlock()
}

// abandon ends a publish whose caller waits no longer. If it is on its way, its outcome stays
// unknown.
func (p *Publisher) abandon(e *entry, cause error) {
	var over results
	p.mu.Lock()
	if e.refusal != nil {
		cause = fmt.Errorf("%w while the sidecar asked for time: %w", cause, e.refusal)
	}
	switch {
	case e.state == removed || e.abandoned:
	case e.state == sent:
		e.abandoned = true
		over = append(over, result{0, e.done, Receipt{}, e.failed(cause)})
		e.done = func(Receipt, error) {}
	default:
		p.finish(e, Receipt{}, cause, &over)
	}
	p.mu.Unlock()
	p.tell(over)
}

// result is a callback that is due, of the event with that number; 0: the event itself is not at
// its end.
type result struct {
	number  uint64
	done    func(Receipt, error)
	receipt Receipt
	err     error
}

type results []result

// tell calls the callbacks, and then wakes the goroutines that wait for their return.
func (p *Publisher) tell(over results) {
	if len(over) == 0 {
		return
	}
	for i := range over {
		over[i].done(over[i].receipt, over[i].err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range over {
		p.queue.told(over[i].number)
	}
}

// finish gives an event its result and adds it to over, whose callbacks are called once the lock is
// free.
func (p *Publisher) finish(e *entry, r Receipt, err error, over *results) {
	if e.state == removed {
		return
	}
	var stopped results // of the last one first
	if err != nil && p.config.StopKey && e.ofKey != nil && e.state != behind {
		for at := e.ofKey.behind.Back(); at != nil; at = e.ofKey.behind.Back() {
			p.finish(at.Value.(*entry), Receipt{}, fmt.Errorf("%w: %w", ErrKeyStopped, e.failed(err)), &stopped)
		}
	}
	p.queue.remove(e)
	p.count--
	p.bytes -= e.size
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
	if e.uncertain && e.fresh {
		r.Duplicate = false // it is only a duplicate of its own first try
	}
	*over = append(*over, result{e.number, e.done, r, e.failed(err)})
	slices.Reverse(stopped)
	*over = append(*over, stopped...)
}
