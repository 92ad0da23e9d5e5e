package writer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/require"
)

func TestOrderPerLaneUnderManyEnqueuers(t *testing.T) {
	const enqueuers, events, partitions = 8, 400, 3
	log := newFakeLog()
	log.hook = func(context.Context, string, []*eventlog.Record) error {
		runtime.Gosched()
		return nil
	}
	w := newWriter(log, func(b *writer.Bounds) { b.BatchEvents = 7 })
	told := make([]*outcomes, enqueuers)
	var wg sync.WaitGroup
	for e := range enqueuers {
		told[e] = newOutcomes()
		wg.Go(func() {
			for i := range events {
				id := fmt.Sprintf("%d-%04d", e, i)
				if err := w.Enqueue("t", i%partitions, item(id, i, told[e], i)); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	w.Stop(t.Context())

	if log.overlaps > 0 {
		t.Errorf("%d appends overlapped another of their partition", log.overlaps)
	}
	for p := range partitions {
		last := make(map[string]string) // by enqueuer
		for _, id := range log.ids("t", p) {
			by, _, _ := strings.Cut(id, "-")
			if id <= last[by] {
				t.Fatalf("partition %d: %s came after %s", p, id, last[by])
			}
			last[by] = id
		}
	}
	for e := range enqueuers {
		for i := range events {
			out := told[e].once(t, i)
			if want := fmt.Sprintf("%d-%04d", e, i); out.Err != nil || log.ids("t", out.Partition)[out.Seq-1] != want {
				t.Fatalf("%s was told %+v", want, out)
			}
		}
	}
	wantDepth(t, w, 0, 0)
}

func TestFullQueues(t *testing.T) {
	for _, c := range []struct {
		name    string
		bounds  func(*writer.Bounds)
		fits    int // beside the one that is being appended
		queue   string
		another bool // whether another partition still takes one
	}{
		{"partition events", func(b *writer.Bounds) { b.PartitionEvents = 3 }, 3, "partition", true},
		{"partition bytes", func(b *writer.Bounds) { b.PartitionBytes = 3*recordSize + 1 }, 3, "partition", true},
		{"total bytes", func(b *writer.Bounds) { b.TotalBytes = int64(4*recordSize + 1) }, 3, "total", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, to := newFakeLog(), newOutcomes()
				gate := log.gate()
				w := newWriter(log, c.bounds)
				enqueue(t, w, to, 0, 0, 0)
				synctest.Wait() // it is being appended
				enqueue(t, w, to, 0, 1, c.fits)
				events := 1 + c.fits
				wantFull(t, w.Enqueue("t", 0, item("no", 0, to, 99)), c.queue)
				wantFull(t, w.Enqueue("t", 0, item("no", 0, to, 99)), c.queue)
				if err := w.Enqueue("t", 1, item("50", 0, to, 50)); (err == nil) != c.another {
					t.Errorf("another partition: %v", err)
				} else if err == nil {
					events++
				}
				wantDepth(t, w, events, int64(events*recordSize))

				close(gate)
				synctest.Wait()
				wantDepth(t, w, 0, 0)
				enqueue(t, w, to, 0, 60, 62)
				w.Stop(t.Context()) // a refusal that left something behind would hang it
				wantDepth(t, w, 0, 0)
				if to.count() != events+3 {
					t.Errorf("%d events were settled, want %d", to.count(), events+3)
				}
				if slices.Contains(log.ids("t", 0), "no") {
					t.Error("a refused event was stored")
				}
			})
		})
	}
}

// An event over a byte bound of the partition or the batch goes alone.
func TestEventLargerThanLaneAndBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		gate := log.gate()
		w := newWriter(log, func(b *writer.Bounds) { b.PartitionBytes, b.BatchBytes = 2*recordSize, 2*recordSize })
		enqueue(t, w, to, 0, 0, 0)
		synctest.Wait()
		require.NoError(t, w.Enqueue("t", 0, item("big", 5*recordSize, to, 1)))
		wantFull(t, w.Enqueue("t", 0, item("02", 0, to, 2)), "partition")
		close(gate)
		w.Stop(t.Context())
		if len(log.batches) != 2 || to.once(t, 1).Seq != 2 {
			t.Errorf("%d batches, outcome %+v", len(log.batches), to.once(t, 1))
		}
	})
}

// The writer appends queued events in order, in the largest batches that the bounds allow.
func TestBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		maxEvents := rapid.IntRange(1, 10).Draw(rt, "batch events")
		maxBytes := rapid.IntRange(1, 6*recordSize).Draw(rt, "batch bytes")
		payloads := rapid.SliceOfN(rapid.IntRange(0, 3*recordSize), 1, 60).Draw(rt, "payloads")
		log, to := newFakeLog(), newOutcomes()
		gate := log.gate()
		w := newWriter(log, func(b *writer.Bounds) { b.BatchEvents, b.BatchBytes = maxEvents, maxBytes })
		var want []string
		for i, n := range payloads {
			id := fmt.Sprintf("%02d", i)
			want = append(want, id)
			require.NoError(rt, w.Enqueue("t", 0, item(id, n, to, i)))
		}
		close(gate)
		w.Stop(context.Background())

		if got := log.ids("t", 0); !slices.Equal(got, want) {
			rt.Fatalf("stored %v, want %v", got, want)
		}
		for i, batch := range log.batches {
			size := 0
			for _, r := range batch {
				size += r.Size()
			}
			if len(batch) > maxEvents || len(batch) > 1 && size > maxBytes {
				rt.Fatalf("a batch of %d events and %d bytes", len(batch), size)
			}
			// The first may have left before the second event came.
			if i > 0 && i+1 < len(log.batches) && len(batch) < maxEvents &&
				size+log.batches[i+1][0].Size() <= maxBytes {
				rt.Fatalf("batch %d had room for the next event", i)
			}
		}
		if got := w.Depth(); got != (writer.Depth{}) {
			rt.Fatalf("depth %+v", got)
		}
	})
}

func TestFailingLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		down := true
		log.hook = func(context.Context, string, []*eventlog.Record) error {
			if down {
				return fmt.Errorf("no disk: %w", eventlog.ErrUnavailable)
			}
			return nil
		}
		w := newWriter(log, nil)
		enqueue(t, w, to, 0, 0, 9)
		synctest.Wait()
		for i := range 10 {
			if out := to.once(t, i); !errors.Is(out.Err, eventlog.ErrUnavailable) {
				t.Errorf("event %d was told %+v", i, out)
			}
		}
		wantDepth(t, w, 0, 0)
		down = false
		enqueue(t, w, to, 0, 10, 11)
		synctest.Wait()
		if out := to.once(t, 11); out.Err != nil || out.Seq != 2 {
			t.Errorf("afterwards: %+v", out)
		}
		w.Stop(t.Context())
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		perEvent := 20 * time.Millisecond
		log.hook = func(_ context.Context, _ string, batch []*eventlog.Record) error {
			time.Sleep(time.Duration(len(batch)) * perEvent)
			return nil
		}
		w := newWriter(log, func(b *writer.Bounds) { b.PartitionEvents, b.BatchEvents = 50, 10 })
		enqueue(t, w, to, 0, 0, 49)
		time.Sleep(time.Hour) // the pace is known
		enqueue(t, w, to, 0, 100, 100)
		synctest.Wait() // it is being appended
		enqueue(t, w, to, 0, 101, 150)
		full := wantFull(t, w.Enqueue("t", 0, item("no", 0, to, 99)), "partition")
		if want := 51 * perEvent; full.RetryAfter != want {
			t.Errorf("retry after %v, want %v", full.RetryAfter, want)
		}
		time.Sleep(full.RetryAfter)
		if err := w.Enqueue("t", 0, item("60", 0, to, 151)); err != nil {
			t.Errorf("the time was not enough: %v", err)
		}
		w.Stop(t.Context())
	})
}

// A log that has never answered is not asked every few milliseconds.
func TestRetryAfterWhileTheLogHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		gate := log.gate()
		w := newWriter(log, func(b *writer.Bounds) { b.PartitionEvents = 1 })
		enqueue(t, w, to, 0, 0, 0)
		synctest.Wait()
		enqueue(t, w, to, 0, 1, 1)
		for _, c := range []struct{ hangs, want time.Duration }{
			{0, 10 * time.Millisecond},
			{2 * time.Second, 2 * time.Second},
			{time.Hour, 10 * time.Second},
		} {
			time.Sleep(c.hangs)
			full := wantFull(t, w.Enqueue("t", 0, item("no", 0, to, 99)), "partition")
			if full.RetryAfter != c.want {
				t.Errorf("after another %v: retry after %v, want %v", c.hangs, full.RetryAfter, c.want)
			}
		}
		close(gate)
		w.Stop(t.Context())
	})
}

// Readers are woken when the events are stored, before the publisher knows, and find the new ones
// alone.
func TestTailsAreToldBetweenAppendAndOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		gate := log.gate()
		tails := tail.New(tail.DefaultBounds())
		w := writer.New(writer.Config{Log: log, Notifier: writer.Notifier{Tails: tails}, Bounds: writer.DefaultBounds()})
		enqueue(t, w, newOutcomes(), 0, 0, 0)
		synctest.Wait() // the others become one batch behind it
		woken := 0
		watch := tails.Watch("t", func() {
			woken++
			if stored := len(log.ids("t", 0)); stored != 1 && stored != 3 {
				t.Errorf("woken with %d events stored, want 1 or 3", stored)
			}
			if to.count() > 0 {
				t.Error("woken after the outcome")
			}
		})
		defer watch.Close()
		for i, id := range []string{"new1", "duplicate", "conflict", "new2"} {
			require.NoError(t, w.Enqueue("t", 0, item(id, 0, to, i)))
		}
		synctest.Wait()
		if woken > 0 {
			t.Error("woken before the append")
		}
		close(gate)
		w.Stop(t.Context())
		if woken != 2 || watch.Head(0) != 3 {
			t.Errorf("woken %d times with head %d, want twice with 3", woken, watch.Head(0))
		}
		recs := watch.Read(0, 2, eventlog.Bounds{Events: 10})
		if len(recs) != 2 || recs[0].ID != "new1" || recs[1].ID != "new2" {
			t.Errorf("the tail holds %d events", len(recs))
		}
		if !to.once(t, 1).Duplicate || to.once(t, 2).Err == nil || to.once(t, 3).Seq != 3 {
			t.Errorf("outcomes %+v", to.outs)
		}
	})
}

type receiverFunc func(index int, out eventlog.Outcome)

func (f receiverFunc) Completed(index int, out eventlog.Outcome) { f(index, out) }

// An event that has its outcome no longer counts.
func TestDepthInsideCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(newFakeLog(), nil)
		it := item("00", 0, nil, 0)
		it.Receiver = receiverFunc(func(int, eventlog.Outcome) { wantDepth(t, w, 0, 0) })
		require.NoError(t, w.Enqueue("t", 0, it))
		w.Stop(t.Context())
	})
}

type observer struct {
	mu     sync.Mutex
	events int
	took   []time.Duration
}

func (o *observer) BatchAppended(events int, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events += events
	o.took = append(o.took, took)
}

func TestObserverIsToldEveryBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to, seen := newFakeLog(), newOutcomes(), &observer{}
		log.hook = func(context.Context, string, []*eventlog.Record) error {
			time.Sleep(time.Second)
			return nil
		}
		w := writer.New(writer.Config{Log: log, Observer: seen.BatchAppended, Bounds: writer.DefaultBounds()})
		enqueue(t, w, to, 0, 0, 0)
		synctest.Wait()
		enqueue(t, w, to, 0, 1, 20)
		w.Stop(t.Context())
		if seen.events != 21 || !slices.Equal(seen.took, []time.Duration{time.Second, time.Second}) {
			t.Errorf("observed %d events in batches of %v", seen.events, seen.took)
		}
	})
}

// Other sidecars hear what became readable, and of what may have.
func TestOthersAreSignalled(t *testing.T) {
	var hints []eventlog.Hint
	n := writer.Notifier{Signal: func(h eventlog.Hint) { hints = append(hints, h) }}
	recs := []*eventlog.Record{{}, {}, {}}
	stored := func(seq uint64) eventlog.Outcome { return eventlog.Outcome{Partition: 2, Seq: seq} }
	duplicate := eventlog.Outcome{Partition: 2, Seq: 77, Duplicate: true}
	elsewhere := eventlog.Outcome{Partition: 1, Seq: 99}
	spooled := eventlog.Outcome{Spooled: true}
	unknown := eventlog.Outcome{Err: eventlog.ErrUnavailable}
	for _, outs := range [][]eventlog.Outcome{
		{stored(4), duplicate, stored(5)},
		{duplicate, spooled, {Err: &eventlog.ConflictError{}}},
		{elsewhere, elsewhere, elsewhere},
		{stored(6), unknown, unknown},
	} {
		n.Appended("t", 2, recs, outs)
	}
	want := []eventlog.Hint{{Topic: "t", Partition: 2, Head: 5}, {Topic: "t", Partition: 2, Head: 0}}
	if !slices.Equal(hints, want) {
		t.Errorf("hints %+v, want %+v", hints, want)
	}
}
