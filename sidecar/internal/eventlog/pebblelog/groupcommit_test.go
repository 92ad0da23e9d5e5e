package pebblelog

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/figures"
	"github.com/sluice-bus/sluice/test/require"
)

// batchesOf has one event for each of n topics, which it makes.
func batchesOf(t testing.TB, l *Log, n int) []eventlog.Batch {
	t.Helper()
	batches := make([]eventlog.Batch, n)
	for i := range batches {
		batches[i] = eventlog.Batch{Topic: fmt.Sprint("topic-", i), Partition: i % benchPartitions}
		batches[i].Records = []*eventlog.Record{benchRecord(int64(i), true)}
		ensure(t, l, batches[i].Topic, benchPartitions)
	}
	return batches
}

// TestOneCommit: the batches of an append wait for one sync, and none is readable before it.
func TestOneCommit(t *testing.T) {
	disk := &slow{}
	l := mustOpen(t, Options{Dir: "data", FS: errorfs.Wrap(vfs.NewMem(), disk)})
	defer l.Close()
	batches := batchesOf(t, l, 100)
	holdSyncs(l, disk)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.AppendAll(t.Context(), slices.Clone(batches))
	}()
	underWay(l, 1)
	wantHeads := func(want uint64) {
		t.Helper()
		for _, b := range batches {
			extents, err := l.Extents(t.Context(), b.Topic)
			if require.NoError(t, err); extents[b.Partition].Head != want {
				t.Fatalf("topic %s has head %d; want %d", b.Topic, extents[b.Partition].Head, want)
			}
		}
	}
	wantHeads(0)
	if n := len(l.commits.slots); n != 1 {
		t.Errorf("%d commits are under way; want 1", n)
	}
	disk.release()
	<-done
	wantHeads(1)
}

// TestAFailedCommitFailsAll: where the disk fails, each batch of the append is unknown.
func TestAFailedCommitFailsAll(t *testing.T) {
	fail := &failing{file: ".log", kinds: syncs}
	l := mustOpen(t, Options{Dir: "data", FS: errorfs.Wrap(vfs.NewMem(), fail)})
	defer l.Close()
	batches := batchesOf(t, l, 10)
	fail.armed.Store(true)
	l.AppendAll(t.Context(), batches)
	for _, b := range batches {
		if !errors.Is(b.Outcomes[0].Err, eventlog.ErrUnavailable) || b.Records[0].FreshID {
			t.Errorf("%s: %+v, fresh id %v", b.Topic, b.Outcomes[0], b.Records[0].FreshID)
		}
	}
}

// TestAHeldTurnEndsWithTheDisk: who waits for a partition whose turn another commit keeps while the disk is full is
// refused, since all publishes wait behind it.
func TestAHeldTurnEndsWithTheDisk(t *testing.T) {
	l := mustOpen(t, Options{InMemory: true})
	defer l.Close()
	ensure(t, l, "t", 1)
	tp, err := l.catalog.find("t")
	require.NoError(t, err)
	part, err := l.partition(tp, 0)
	require.NoError(t, err)
	require.NoError(t, part.turn.Lock(t.Context()))
	got := make(chan eventlog.Outcome)
	go func() { got <- l.Append(t.Context(), "t", 0, eventlogtest.Events("a", 1))[0] }()
	for tp.claims.try([]string{"a-000"}) == nil { // it has not decided yet
		tp.claims.release([]string{"a-000"})
		runtime.Gosched()
	}
	l.space.await(syscall.ENOSPC)
	var full *eventlog.DiskFullError
	if o := <-got; !errors.As(o.Err, &full) {
		t.Errorf("%+v; want that the disk is full", o)
	}
	part.turn.Unlock()
}

// TestCostOfManyTopics is what an event costs the log where each of an append is in a topic of its own.
func TestCostOfManyTopics(t *testing.T) {
	const topics, rounds = 100, 50
	var l *Log
	var batches []eventlog.Batch
	figures.Allocations(t, "embedded log, an event in each of 100 topics", topics*rounds, func() func() {
		fresh := mustOpen(t, Options{InMemory: true})
		t.Cleanup(func() { fresh.Close() })
		l, batches = fresh, batchesOf(t, fresh, topics)
		return func() {
			for n := range rounds {
				for i := range batches {
					batches[i].Records = []*eventlog.Record{benchRecord(int64(n), true)}
				}
				l.AppendAll(t.Context(), batches)
				for i := range batches {
					require.NoError(t, batches[i].Outcomes[0].Err)
				}
			}
		}
	})
	figures.Compare(t, "embedded log, an event in each of 100 topics: bytes in the journal of an event", journaled(l)/(topics*rounds))
}

// TestCostOfAFirstEvent is what the first event of a partition costs: a new topic has nothing to recover.
func TestCostOfAFirstEvent(t *testing.T) {
	const topics = 100
	figures.Allocations(t, "embedded log, the first event of a partition", topics*benchPartitions, func() func() {
		l := mustOpen(t, Options{InMemory: true})
		t.Cleanup(func() { l.Close() })
		batches := batchesOf(t, l, topics)
		return func() {
			for p := range benchPartitions {
				for i := range batches {
					batches[i].Partition, batches[i].Records = p, []*eventlog.Record{benchRecord(int64(i), true)}
				}
				l.AppendAll(t.Context(), batches)
				for i := range batches {
					require.NoError(t, batches[i].Outcomes[0].Err)
				}
			}
		}
	})
}
