package sluice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Publisher publishes events without waiting for each: many are on their way
// at a time, on a connection of the publisher's own. Its methods may be called
// by several goroutines at once.
//
// Every event has an id before it is sent for the first time (a UUIDv7, unless
// it brought one), so that sending it again is harmless. It is sent again
//
//   - when the connection broke before the answer came;
//   - when the sidecar asks for time (rate_limited, overloaded,
//     store_unavailable), after the time that it names.
//
// Any other refusal is the event's result, an [*Error].
//
// Events of one (topic, key) are logged in the order in which they were handed
// over, whatever is refused or lost on the way: the next one is sent when the
// one before is answered. An event that fails for good does not stop those
// behind it. Events without a key have no order among each other.
type Publisher struct {
	client *Client
	config publisherConfig
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // of the sender; it holds one

	mu     sync.Mutex
	closed bool
	queue  sendQueue
	count  int           // events without a result
	bytes  int           // their size
	room   chan struct{} // closed, and made anew, when count falls; nil: nobody waits
}

// A PublisherOption sets something of a [Publisher].
type PublisherOption func(*publisherConfig)

type publisherConfig struct{ count, bytes int }

const (
	defaultWindowEvents = 10_000
	defaultWindowBytes  = 32 << 20
)

// Window bounds the events that have no result yet: their number (10,000) and
// their size in bytes (32 MiB). At the bound, publishing waits. One event that
// is larger than all bytes goes alone.
func Window(count, bytes int) PublisherOption {
	return func(c *publisherConfig) { c.count, c.bytes = max(count, 1), max(bytes, 1) }
}

// NewPublisher makes a publisher; [Publisher.Close] or the client's Close ends
// it.
func (c *Client) NewPublisher(opts ...PublisherOption) *Publisher { return c.newPublisher(opts, nil) }

func (c *Client) newPublisher(opts []PublisherOption, first *Conn) *Publisher {
	p := &Publisher{
		client: c, config: publisherConfig{defaultWindowEvents, defaultWindowBytes},
		wake: make(chan struct{}, 1), queue: newSendQueue(),
	}
	for _, set := range opts {
		set(&p.config)
	}
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
	p.work.Go(func() { l.run(p.ctx, first) })
	return p
}

// Publish hands over one event and calls done once with its result, unless
// Publish returns an error itself: then nothing was sent. It waits while the
// window is full, until ctx ends; once the event is handed over, ctx has no
// effect on it.
//
// Of the event, Topic and Payload count, and of the rest what is set; a TS of 0
// lets the sidecar set the time. Payload must be JSON text, unless Binary is
// set. The event is the caller's again when Publish returns.
//
// done must not be nil and must not wait, neither for results nor for room. The
// results of one key come in its order.
func (p *Publisher) Publish(ctx context.Context, e *Event, done func(Receipt, error)) error {
	_, err := p.submit(ctx, e, done)
	return err
}

// submit checks an event and queues it.
func (p *Publisher) submit(ctx context.Context, e *Event, done func(Receipt, error)) (*entry, error) {
	next := &entry{event: *e, done: done}
	next.event.Headers = p.client.traced(ctx, slices.Clone(e.Headers))
	if err := next.prepare(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p.closed {
			return nil, ErrClosed
		}
		if p.count == 0 || p.count < p.config.count && p.bytes+next.size <= p.config.bytes {
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

// prepare makes the event independent of the caller's, gives it an id, and
// refuses what would break the frame that it shares with others, or would be
// changed by it. Limits are the sidecar's to hold.
func (e *entry) prepare() error {
	ev := &e.event
	lim := wire.Limits{PayloadBytes: maxInt, HeaderCount: maxInt, HeaderBytes: maxInt, KeyBytes: maxInt, JSONDepth: maxInt}
	if ev.ID == "" {
		ev.ID, e.fresh = uuid.Must(uuid.NewV7()).String(), true
	}
	var bad *wire.Error
	if ev.Binary {
		ev.Payload = bytes.Clone(ev.Payload)
	} else {
		ev.Payload, bad = wire.CompactPayload(ev.Payload, lim)
	}
	for _, check := range []func() *wire.Error{
		func() *wire.Error { return bad },
		func() *wire.Error { return wire.CheckTopic(ev.Topic) },
		func() *wire.Error { return wire.CheckID(ev.ID) },
		func() *wire.Error { return wire.CheckKey(ev.Key, lim) },
		func() *wire.Error { return wire.CheckHeaders(ev.Headers, lim) },
		func() *wire.Error { return checkTexts(ev) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	ev.Tags, ev.CausedBy = slices.Clone(ev.Tags), slices.Clone(ev.CausedBy)
	e.size = ev.Size()
	return nil
}

// publish is Client.Publish.
func (p *Publisher) publish(ctx context.Context, e *Event) (Receipt, error) {
	var is Result
	answered := make(chan struct{})
	next, err := p.submit(ctx, e, func(r Receipt, err error) {
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
func (p *Publisher) publishBatch(ctx context.Context, events []Event) ([]Result, error) {
	results := make([]Result, len(events))
	entries := make([]*entry, len(events))
	var left sync.WaitGroup
	for i := range events {
		left.Add(1)
		var err error
		entries[i], err = p.submit(ctx, &events[i], func(r Receipt, err error) {
			results[i] = Result{r, err}
			left.Done()
		})
		if err != nil {
			results[i].Err = err
			left.Done()
		}
	}
	answered := context.AfterFunc(ctx, func() {
		for _, e := range entries {
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

// Flush waits until every event that was handed over before has its result, or
// ctx ends.
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

// Close ends the publisher: events without a result fail with [ErrClosed]; use
// [Publisher.Flush] before it to wait for them. It must not be called by a
// callback.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	var over results
	for _, e := range p.queue.all() {
		p.finish(e, Receipt{}, ErrClosed, &over)
	}
	p.mu.Unlock()
	p.tell(over)
	p.client.mu.Lock()
	delete(p.client.pubs, p)
	p.client.mu.Unlock()
}

// abandon ends a publish whose caller waits no longer. If it is on its way, its
// outcome stays unknown.
func (p *Publisher) abandon(e *entry, cause error) {
	var over results
	p.mu.Lock()
	if e.refusal != nil {
		cause = fmt.Errorf("%w while the sidecar asked for time: %w", cause, e.refusal)
	}
	switch {
	case e.over || e.abandoned:
	case e.state == sent:
		e.abandoned = true
		over = append(over, result{0, e.done, Receipt{}, cause})
		e.done = func(Receipt, error) {}
	default:
		p.finish(e, Receipt{}, cause, &over)
	}
	p.mu.Unlock()
	p.tell(over)
}

// result is a callback that is due, of the event with that number; 0: the event
// itself is not at its end.
type result struct {
	number  uint64
	done    func(Receipt, error)
	receipt Receipt
	err     error
}

type results []result

// tell calls the callbacks, and then lets go who waits for them to have returned.
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

// finish gives an event its result; over is told once the lock is free.
func (p *Publisher) finish(e *entry, r Receipt, err error, over *results) {
	if e.over {
		return
	}
	e.over = true
	p.queue.remove(e)
	p.count--
	p.bytes -= e.size
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
	if e.doubtful && e.fresh {
		r.Duplicate = false // of nothing but its own first try
	}
	*over = append(*over, result{e.number, e.done, r, err})
}

// nudge wakes the sender.
func (p *Publisher) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// serve sends what is queued over one connection, until it ends or ctx does.
// When it returns, nothing is on its way.
func (p *Publisher) serve(ctx context.Context, conn *Conn) error {
	timer := time.NewTimer(farAway)
	defer timer.Stop()
	defer func() { <-conn.Done() }() // until then answers come
	for {
		p.mu.Lock()
		batch, wait := p.queue.take(time.Now())
		p.mu.Unlock()
		if len(batch) > 0 {
			if err := p.send(ctx, conn, batch); err != nil {
				conn.abort(err)
				return nil // the connection says what it is
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-conn.Done():
			return nil
		case <-ctx.Done():
			p.mu.Lock()
			waiting := p.queue.requests > 0
			p.mu.Unlock()
			if waiting {
				conn.abort(errors.New("the publisher was closed"))
			} else {
				_ = conn.Close() // nobody is left to tell
			}
			return nil
		}
	}
}

// send sends a batch of one topic. After an error it was not sent, and is ready
// again.
func (p *Publisher) send(ctx context.Context, conn *Conn, batch []*entry) error {
	var err error
	if len(batch) == 1 {
		err = conn.PublishAsync(ctx, &batch[0].event, func(r Receipt, err error) {
			p.answered(batch, []wire.ResultItem{{Receipt: r}}, err)
		})
	} else {
		events := make([]Event, len(batch))
		for i, e := range batch {
			events[i] = e.event
		}
		err = conn.PublishBatchAsync(ctx, batch[0].event.Topic, events, func(items []wire.ResultItem, err error) {
			p.answered(batch, items, err)
		})
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue.putBack(batch)
		p.queue.ended(batch[0].topic)
	}
	return err
}

// answered takes the answer to a batch: its results, or what became of it as a
// whole.
func (p *Publisher) answered(batch []*entry, items []wire.ResultItem, err error) {
	var over results
	p.mu.Lock()
	refusal, refused := errors.AsType[*wire.Error](err)
	switch {
	case err != nil && !refused:
		p.lost(batch, err, &over)
	case refused && len(batch) > 1 && (refusal.Code == wire.BadRequest || refusal.Code == wire.PayloadTooLarge):
		p.queue.tooLarge(len(batch)) // for a bucket's burst, say: which event it is about is not known
		p.queue.putBack(batch)
	default:
		var again []*entry
		for i, e := range batch {
			of := refusal
			if !refused && items[i].Err != nil {
				of = items[i].Err
			}
			if of == nil {
				p.finish(e, items[i].Receipt, nil, &over)
				continue
			}
			e.refusal = of
			after, ok := worthRetrying(of)
			if !ok || e.abandoned || p.closed {
				p.finish(e, Receipt{}, of, &over)
				continue
			}
			p.queue.hold(e, time.Now().Add(after), of.Scope == "connection")
			again = append(again, e)
		}
		if len(again) == 0 {
			p.queue.flows(batch[0].topic)
		}
		p.queue.putBack(again)
	}
	p.queue.ended(batch[0].topic)
	p.nudge()
	p.mu.Unlock()
	p.tell(over)
}

// lost takes back a batch whose connection ended before the answer.
func (p *Publisher) lost(batch []*entry, err error, over *results) {
	if code := unbearable(err); code != "" {
		if batch[0].alone {
			p.queue.solo = false
			p.finish(batch[0], Receipt{}, wire.Errorf(code, "%v", err), over)
			return
		}
		p.queue.solo = true // to find out which event it was
	}
	var back []*entry
	for _, e := range batch {
		e.doubtful = true
		if e.abandoned {
			p.finish(e, Receipt{}, err, over)
			continue
		}
		back = append(back, e)
	}
	p.queue.putBack(back)
}
