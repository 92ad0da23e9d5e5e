package writer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

func TestStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		log.hook = func(context.Context, string, []*eventlog.Record) error {
			time.Sleep(time.Second)
			return nil
		}
		w := newWriter(log, func(b *writer.Bounds) { b.BatchEvents = 10 })
		enqueue(t, w, to, 0, 0, 29)
		enqueue(t, w, to, 1, 30, 39)
		began := time.Now()
		stopped := make(chan struct{})
		go func() {
			w.Stop(t.Context())
			close(stopped)
		}()
		synctest.Wait()
		err := w.Enqueue("t", 0, item("no", 0, to, 99))
		if !errors.Is(err, writer.ErrStopped) || !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("enqueue while stopping: %v", err)
		}
		if err := w.Enqueue("new", 0, item("no", 0, to, 99)); !errors.Is(err, writer.ErrStopped) {
			t.Errorf("enqueue in a new partition while stopping: %v", err)
		}
		<-stopped
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("three batches of a second took %v", took)
		}
		for i := range 40 {
			if out := to.once(t, i); out.Err != nil {
				t.Errorf("event %d: %v", i, out.Err)
			}
		}
		wantDepth(t, w, 0, 0)
		w.Stop(t.Context()) // once more is harmless
	})
}

func TestStopGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := newFakeLog(), newOutcomes()
		log.gate() // never opened
		w := newWriter(log, func(b *writer.Bounds) { b.BatchEvents = 10 })
		enqueue(t, w, to, 0, 0, 29)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		w.Stop(ctx)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("gave up after %v, want 5s", took)
		}
		for i := range 30 {
			if out := to.once(t, i); !errors.Is(out.Err, eventlog.ErrUnavailable) {
				t.Errorf("event %d was told %+v", i, out)
			}
		}
		wantDepth(t, w, 0, 0)
	})
}

// Every event that Enqueue took is settled once before Stop returns, wherever Stop falls between
// the enqueuers.
func TestStopAmongEnqueuers(t *testing.T) {
	for range 50 {
		log := newFakeLog()
		w := newWriter(log, func(b *writer.Bounds) { b.PartitionEvents = 20 })
		told := make([]*outcomes, 4)
		taken := make([][]int, len(told))
		var wg sync.WaitGroup
		started := make(chan struct{}, len(told))
		for e := range told {
			told[e] = newOutcomes()
			wg.Go(func() {
				for i := 0; ; i++ {
					switch err := w.Enqueue("t", i%5, item("id", 0, told[e], i)); {
					case err == nil:
						taken[e] = append(taken[e], i)
					case errors.Is(err, writer.ErrStopped):
						return
					}
					if i == 10 {
						started <- struct{}{}
					}
				}
			})
		}
		<-started
		w.Stop(t.Context())
		settled := make([]int, len(told))
		for e := range told {
			settled[e] = told[e].count()
		}
		wg.Wait()
		for e := range told {
			if settled[e] != len(taken[e]) {
				t.Fatalf("%d events were taken, %d settled when Stop returned", len(taken[e]), settled[e])
			}
			for _, i := range taken[e] {
				told[e].once(t, i)
			}
		}
		wantDepth(t, w, 0, 0)
	}
}
