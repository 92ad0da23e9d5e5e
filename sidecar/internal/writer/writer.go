// Package writer writes accepted events to the log. It has a bounded queue for each (topic,
// partition), and one batch of each in flight. So events are logged in the order in which they were
// queued, and all events of an append share one wait for the disk or the network.
package writer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Bounds of the queues and of one batch.
type Bounds struct {
	PartitionEvents int   // waiting per partition
	PartitionBytes  int   // waiting per partition
	TotalBytes      int64 // waiting in all partitions together
	BatchEvents     int
	BatchBytes      int
}

// DefaultBounds are those of the design: batches of 1,000 events or 8 MiB.
func DefaultBounds() Bounds {
	return Bounds{
		PartitionEvents: 10_000, PartitionBytes: 16 << 20, TotalBytes: 64 << 20,
		BatchEvents: 1000, BatchBytes: 8 << 20,
	}
}

// Receiver gets the outcomes of the events that it queued.
type Receiver interface {
	// Completed is called once per queued event with the index that it was queued under. It must
	// not block.
	Completed(index int, out eventlog.Outcome)
}

// Item is one event on its way into the log.
type Item struct {
	Record   *eventlog.Record
	Receiver Receiver
	Index    int
	Span     *tracing.Send // nil: the event is not recorded
}

// Config is what a Writer needs. Observer and Tracing may be nil.
type Config struct {
	Log eventlog.Appender
	// Together says that an append has the batches of all partitions that wait, up to BatchBytes, and that there is one
	// at a time. Else each partition has its own.
	Together bool
	Notifier Notifier
	// Observer is called after every append. It must not block.
	Observer func(events int, took time.Duration)
	Tracing  *tracing.Tracing
	Bounds   Bounds
	Clock    clock.Clock
}

// Writer owns the queues and the goroutines that empty them, which exist only while events wait.
type Writer struct {
	cfg    Config
	ctx    context.Context // ends when Stop gives up waiting
	cancel context.CancelFunc
	bytes  atomic.Int64 // of all events without an outcome
	busy   sync.WaitGroup
	shared atomic.Bool // the last append had several events

	mu      sync.RWMutex
	stopped bool
	queues  map[partitionKey]*queue

	ready ready
}

// ready has the queues that wait for an append, first in first out.
type ready struct {
	mu      sync.Mutex
	queues  []*queue
	running int // goroutines that append
}

type partitionKey struct {
	topic     string
	partition int
}

// New makes a Writer with empty queues.
func New(cfg Config) *Writer {
	ctx, cancel := context.WithCancel(context.Background())
	return &Writer{cfg: cfg, ctx: ctx, cancel: cancel, queues: make(map[partitionKey]*queue)}
}

// full refuses an event because a queue is full. empty is about how long the queue takes to empty.
func full(queue string, empty time.Duration) *wire.Error {
	e := wire.Errorf(wire.Overloaded, "too many events wait for the log: the %s queue is full; try again later", queue)
	e.RetryAfter = empty
	return e
}

// ErrStopped refuses events while the sidecar shuts down.
var ErrStopped = fmt.Errorf("shutting down: %w", eventlog.ErrUnavailable)

// Enqueue queues an event of an existing topic behind those queued before it. Without an error the
// item's Receiver will be told the outcome; with one (a *wire.Error with overloaded, or ErrStopped)
// nothing was queued.
func (w *Writer) Enqueue(topic string, partition int, it Item) error {
	q, err := w.queue(partitionKey{topic, partition})
	if err != nil {
		return err
	}
	defer w.busy.Done()
	size := it.Record.Size()
	if w.bytes.Add(int64(size)) > w.cfg.Bounds.TotalBytes {
		w.bytes.Add(-int64(size))
		return full("total", q.timeToEmpty())
	}
	start, err := q.push(it, size, w.cfg.Bounds)
	if err != nil {
		w.bytes.Add(-int64(size))
		return err
	}
	if start && w.ready.add(q, w.cfg.Together) {
		w.busy.Go(w.run)
	}
	return nil
}

// add has a queue wait for an append. start says that nobody will make that.
func (r *ready) add(q *queue, together bool) (start bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = append(r.queues, q)
	if start = !together || r.running == 0; start {
		r.running++
	}
	return start
}

// queue finds or makes the queue and, without an error, raises busy for the caller, so that Stop
// cannot pass between the check and the start of an append.
func (w *Writer) queue(k partitionKey) (*queue, error) {
	w.mu.RLock()
	q, stopped := w.queues[k], w.stopped
	if q != nil && !stopped {
		w.busy.Add(1)
	}
	w.mu.RUnlock()
	if stopped {
		return nil, ErrStopped
	}
	if q != nil {
		return q, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil, ErrStopped
	}
	if q = w.queues[k]; q == nil {
		q = &queue{key: k, clock: w.cfg.Clock}
		w.queues[k] = q
	}
	w.busy.Add(1)
	return q, nil
}

// run makes appends until no queue waits.
func (w *Writer) run() {
	a := groups.Get().(*group)
	defer groups.Put(a)
	for {
		if w.cfg.Together && w.shared.Load() {
			runtime.Gosched() // what can run already runs first: its events get into this append
		}
		if w.take(a); len(a.parts) == 0 {
			return
		}
		w.shared.Store(len(a.items) > 1)
		w.append(a)
	}
}

// group is the batches of one append.
type group struct {
	parts   []part
	items   []Item
	records []*eventlog.Record
	batches []eventlog.Batch
}

var groups = sync.Pool{New: func() any { return new(group) }}

// part is the batch of one queue.
type part struct {
	queue *queue
	items []Item
	bytes int
	span  *tracing.Batch
}

// take moves the batches of queues that wait into an append. None ends the goroutine.
func (w *Writer) take(a *group) {
	w.ready.mu.Lock()
	defer w.ready.mu.Unlock()
	n, bytes := 0, 0
	for _, q := range w.ready.queues {
		if n > 0 && (!w.cfg.Together || bytes >= w.cfg.Bounds.BatchBytes) {
			break
		}
		start, size := len(a.items), 0
		a.items, size = q.pop(a.items, w.cfg.Bounds)
		a.parts = append(a.parts, part{queue: q, items: a.items[start:], bytes: size})
		bytes += size
		n++
	}
	w.ready.queues = slices.Delete(w.ready.queues, 0, n)
	if n == 0 {
		w.ready.running--
	}
}

// append appends the batches, says what became of their events, and has queues that have more wait again.
func (w *Writer) append(a *group) {
	ctx := w.ctx
	for i := range a.parts {
		p := &a.parts[i]
		start := len(a.records)
		for k := range p.items {
			a.records = append(a.records, p.items[k].Record)
		}
		b := eventlog.Batch{Topic: p.queue.key.topic, Partition: p.queue.key.partition, Records: a.records[start:]}
		a.batches = append(a.batches, b)
		ctx, p.span = w.cfg.Tracing.Append(w.ctx, b.Topic, b.Partition, len(p.items), p.bytes, spansOf(p.items))
	}
	began := w.cfg.Clock.Now()
	eventlog.AppendAll(ctx, w.cfg.Log, a.batches)
	took := w.cfg.Clock.Since(began)
	if w.cfg.Observer != nil {
		w.cfg.Observer(len(a.items), took)
	}
	for i := range a.parts {
		p, b := &a.parts[i], &a.batches[i]
		p.span.End(b.Outcomes)
		w.bytes.Add(-int64(p.bytes))
		p.queue.appended(took)
		w.cfg.Notifier.Appended(b.Topic, b.Partition, b.Records, b.Outcomes)
		for k, it := range p.items {
			it.Receiver.Completed(it.Index, b.Outcomes[k])
		}
	}
	// Only now may another append have the queue's next batch, so that outcomes and events are told in order.
	for i := range a.parts {
		if q := a.parts[i].queue; q.release() {
			w.ready.add(q, true)
		}
	}
	a.parts, a.items, a.records, a.batches = emptied(a.parts), emptied(a.items), emptied(a.records), emptied(a.batches)
}

// emptied is a slice without elements, and keeps none of them in memory.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// spansOf are the spans of a batch's recorded events, usually none.
func spansOf(batch []Item) (spans []*tracing.Send) {
	for i := range batch {
		if s := batch[i].Span; s != nil {
			spans = append(spans, s)
		}
	}
	return spans
}

// Stop refuses new events and waits until those queued have their outcomes. When ctx ends first,
// appends under way are cancelled, and events without an answer get ErrUnavailable.
func (w *Writer) Stop(ctx context.Context) {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		w.busy.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		w.cancel()
		<-idle
	}
	w.cancel()
}

// Depth is the size of all queues and of the batches being appended.
type Depth struct {
	Events int   `json:"events"`
	Bytes  int64 `json:"bytes"`
}

// Depth returns the current depth.
func (w *Writer) Depth() Depth {
	w.mu.RLock()
	defer w.mu.RUnlock()
	d := Depth{Bytes: w.bytes.Load()}
	for _, q := range w.queues {
		d.Events += q.len()
	}
	return d
}
