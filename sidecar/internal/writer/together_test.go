package writer_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/require"
)

// groupLog is a fakeLog that is given batches of many partitions.
type groupLog struct {
	*fakeLog
	gate     chan struct{}
	running  atomic.Int64
	overlaps int
	appends  [][]eventlog.Batch
}

func (l *groupLog) AppendAll(ctx context.Context, batches []eventlog.Batch) {
	if l.running.Add(1) > 1 {
		l.overlaps++
	}
	defer l.running.Add(-1)
	<-l.gate
	l.appends = append(l.appends, slices.Clone(batches))
	for i := range batches {
		b := &batches[i]
		b.Outcomes = l.Append(ctx, b.Topic, b.Partition, b.Records)
	}
}

func newTogether(change func(*writer.Bounds)) (*writer.Writer, *groupLog) {
	log, bounds := &groupLog{fakeLog: newFakeLog(), gate: make(chan struct{})}, writer.DefaultBounds()
	change(&bounds)
	return writer.New(writer.Config{Log: log, Together: true, Bounds: bounds}), log
}

// slowReceiver lets all others run before it takes an outcome.
type slowReceiver struct{ told []int }

func (r *slowReceiver) Completed(index int, _ eventlog.Outcome) {
	synctest.Wait()
	r.told = append(r.told, index)
}

// TestOutcomesAreToldInOrder: the next batch of a partition is not appended before the outcomes of the last are told.
func TestOutcomesAreToldInOrder(t *testing.T) {
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := writer.New(writer.Config{Log: newFakeLog(), Together: together, Bounds: writer.DefaultBounds()})
			to := new(slowReceiver)
			for i := range 4 {
				it := item(fmt.Sprint(i), 0, nil, i)
				it.Receiver = to
				require.NoError(t, w.Enqueue("t", 0, it))
				for range 100 {
					runtime.Gosched() // until its outcome is being told
				}
			}
			w.Stop(context.Background())
			if !slices.IsSorted(to.told) || len(to.told) != 4 {
				t.Errorf("together %v: told %v", together, to.told)
			}
		})
	}
}

// The events of all partitions that wait go into one append, those of each partition in order.
func TestTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		maxEvents, maxBytes := rapid.IntRange(1, 5).Draw(rt, "batch events"), rapid.IntRange(1, 6*recordSize).Draw(rt, "batch bytes")
		partitions := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 40).Draw(rt, "partitions")
		w, log := newTogether(func(b *writer.Bounds) { b.BatchEvents, b.BatchBytes = maxEvents, maxBytes })
		to, want := newOutcomes(), map[int][]string{}
		for i, p := range partitions {
			id := fmt.Sprintf("%02d", i)
			want[p] = append(want[p], id)
			require.NoError(rt, w.Enqueue("t", p, item(id, 0, to, i)))
		}
		close(log.gate)
		w.Stop(context.Background())

		if log.overlaps > 0 {
			rt.Errorf("%d appends overlapped", log.overlaps)
		}
		for p, ids := range want {
			if got := log.ids("t", p); !slices.Equal(got, ids) {
				rt.Errorf("partition %d has %v, want %v", p, got, ids)
			}
		}
		for i := range partitions {
			if out := to.once(t, i); out.Err != nil || out.Partition != partitions[i] {
				rt.Errorf("event %d was told %+v", i, out)
			}
		}
		for i, batches := range log.appends {
			size := 0
			for _, b := range batches[:len(batches)-1] {
				size += len(b.Records) * recordSize
			}
			if size >= maxBytes {
				rt.Errorf("append %d took another batch after %d bytes", i, size)
			}
		}
		if got := w.Depth(); got != (writer.Depth{}) {
			rt.Errorf("depth %+v", got)
		}
	})
}

// While an append is under way, what comes waits for the next, whatever its topic.
func TestOneAppendForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newTogether(func(*writer.Bounds) {})
		to := newOutcomes()
		enqueue(t, w, to, 0, 0, 0)
		synctest.Wait() // it is being appended
		for i := range 50 {
			require.NoError(t, w.Enqueue(fmt.Sprint("topic-", i), i%3, item("x", 0, to, 1+i)))
		}
		enqueue(t, w, to, 0, 51, 52)
		wantDepth(t, w, 53, int64(50*(recordSize-1)+3*recordSize))
		close(log.gate)
		w.Stop(t.Context())
		if len(log.appends) != 2 || len(log.appends[1]) != 51 {
			t.Errorf("%d appends; want 2, the second one of 51 batches", len(log.appends))
		}
		if to.count() != 53 {
			t.Errorf("%d events were settled", to.count())
		}
	})
}
