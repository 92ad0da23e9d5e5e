package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// fakeLog stores everything in memory and gives seqs. Its hook runs at the start of every append
// and may block; with an error nothing is stored.
type fakeLog struct {
	hook func(ctx context.Context, topic string, batch []*eventlog.Record) error

	mu       sync.Mutex
	stored   map[string][]*eventlog.Record // by topic/partition
	batches  [][]*eventlog.Record
	inflight map[string]bool
	overlaps int // appends that began while their partition had one under way
}

func newFakeLog() *fakeLog {
	return &fakeLog{
		hook:   func(context.Context, string, []*eventlog.Record) error { return nil },
		stored: make(map[string][]*eventlog.Record), inflight: make(map[string]bool),
	}
}

func place(topic string, partition int) string { return fmt.Sprint(topic, "/", partition) }

func (l *fakeLog) EnsureTopic(context.Context, string, int) (eventlog.Topic, error) {
	panic("the writer is given existing topics")
}

func (l *fakeLog) Append(ctx context.Context, topic string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	key := place(topic, partition)
	l.mu.Lock()
	if l.inflight[key] {
		l.overlaps++
	}
	l.inflight[key] = true
	l.mu.Unlock()
	err := l.hook(ctx, topic, batch)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight[key] = false
	l.batches = append(l.batches, slices.Clone(batch))
	outs := make([]eventlog.Outcome, len(batch))
	for i, r := range batch {
		switch {
		case err != nil:
			outs[i] = eventlog.Outcome{Err: err}
		case strings.HasPrefix(r.ID, "conflict"):
			outs[i] = eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID, Seq: 1}}
		case strings.HasPrefix(r.ID, "duplicate"):
			outs[i] = eventlog.Outcome{Partition: partition, Seq: 1, Duplicate: true}
		default:
			l.stored[key] = append(l.stored[key], r)
			r.Partition, r.Seq = partition, uint64(len(l.stored[key]))
			outs[i] = eventlog.Outcome{Partition: partition, Seq: r.Seq, TS: r.TS}
		}
	}
	return outs
}

func (l *fakeLog) ids(topic string, partition int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, r := range l.stored[place(topic, partition)] {
		ids = append(ids, r.ID)
	}
	return ids
}

// gate makes every append wait for one send on the channel, or for its context.
func (l *fakeLog) gate() chan struct{} {
	gate := make(chan struct{})
	l.hook = func(ctx context.Context, _ string, _ []*eventlog.Record) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("append: %w", eventlog.ErrUnavailable)
		}
	}
	return gate
}

// outcomes is a Receiver that keeps what it is told.
type outcomes struct {
	mu   sync.Mutex
	outs map[int][]eventlog.Outcome
}

func newOutcomes() *outcomes { return &outcomes{outs: make(map[int][]eventlog.Outcome)} }

func (o *outcomes) Completed(index int, out eventlog.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outs[index] = append(o.outs[index], out)
}

func (o *outcomes) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.outs)
}

// once returns the one outcome of the index.
func (o *outcomes) once(t testing.TB, index int) eventlog.Outcome {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.outs[index]); n != 1 {
		t.Fatalf("index %d was settled %d times", index, n)
	}
	return o.outs[index][0]
}

func item(id string, payload int, to *outcomes, index int) writer.Item {
	rec := &eventlog.Record{Event: wire.Event{ID: id, Topic: "t", Payload: make([]byte, payload)}}
	return writer.Item{Record: rec, Receiver: to, Index: index}
}

// recordSize is the Size of item's records with a two-byte id and no payload.
var recordSize = item("00", 0, nil, 0).Record.Size()

func newWriter(log *fakeLog, change func(*writer.Bounds)) *writer.Writer {
	b := writer.DefaultBounds()
	if change != nil {
		change(&b)
	}
	return writer.New(writer.Config{Log: log, Bounds: b})
}

// enqueue queues small events with the indexes from first to last.
func enqueue(t *testing.T, w *writer.Writer, to *outcomes, partition, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		if err := w.Enqueue("t", partition, item(fmt.Sprintf("%02d", i), 0, to, i)); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
}

func wantFull(t *testing.T, err error, queue string) *wire.Error {
	t.Helper()
	var full *wire.Error
	if !errors.As(err, &full) || full.Code != wire.Overloaded {
		t.Fatalf("got %v, want overloaded", err)
	}
	if want := "the " + queue + " queue is full"; !strings.Contains(full.Msg, want) {
		t.Errorf("%s, want that %s", full.Msg, want)
	}
	if full.RetryAfter < 10*time.Millisecond || full.RetryAfter > 10*time.Second {
		t.Errorf("retry after %v, want 10ms to 10s", full.RetryAfter)
	}
	return full
}

func wantDepth(t testing.TB, w *writer.Writer, events int, bytes int64) {
	t.Helper()
	if got := w.Depth(); got.Events != events || got.Bytes != bytes {
		t.Errorf("depth %+v, want %d events of %d bytes", got, events, bytes)
	}
}
