// Package writer writes accepted events to the log. It has a bounded queue for each (topic,
// partition), and one batch of each in flight. So events are logged in the order in which they were
// queued, and all events of a batch share one wait for the disk or the network.
package writer

import (
	"context"
	"fmt"
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
	Log      eventlog.Appender
	Notifier Notifier
	// Observer is called after every batch. It must not block.
	Observer func(events int, took time.Duration)
	Tracing  *tracing.Tracing
	Bounds   Bounds
	Clock    clock.Clock
}

// Writer owns the queues and the goroutines that empty them: one per partition that has something
// waiting, none for the others.
type Writer struct {
	cfg    Config
	ctx    context.Context // ends when Stop gives up waiting
	cancel context.CancelFunc
	bytes  atomic.Int64 // of all events without an outcome
	busy   sync.WaitGroup

	mu      sync.RWMutex
	stopped bool
	queues  map[partitionKey]*queue
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
	if start {
		w.busy.Go(func() { w.drain(q) })
	}
	return nil
}

// queue finds or makes the queue and, without an error, raises busy for the caller, so that Stop
// cannot pass between the check and the start of a drain.
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

// drain appends batch after batch until the queue is empty.
func (w *Writer) drain(q *queue) {
	var batch []Item
	var recs []*eventlog.Record
	for {
		var size int
		batch, size = q.pop(batch[:0], w.cfg.Bounds)
		if len(batch) == 0 {
			return
		}
		recs = recs[:0]
		for i := range batch {
			recs = append(recs, batch[i].Record)
		}
		ctx, span := w.cfg.Tracing.Append(w.ctx, q.key.topic, q.key.partition, len(recs), size, spansOf(batch))
		began := w.cfg.Clock.Now()
		outs := w.cfg.Log.Append(ctx, q.key.topic, q.key.partition, recs)
		took := w.cfg.Clock.Since(began)
		span.End(outs)
		q.measured(len(batch), took)
		w.bytes.Add(-int64(size))
		if w.cfg.Observer != nil {
			w.cfg.Observer(len(batch), took)
		}
		w.cfg.Notifier.Appended(q.key.topic, q.key.partition, recs, outs)
		for i, it := range batch {
			it.Receiver.Completed(it.Index, outs[i])
		}
		clear(batch)
		clear(recs)
	}
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
