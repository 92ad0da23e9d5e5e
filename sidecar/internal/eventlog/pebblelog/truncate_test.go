package pebblelog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

var everything = eventlog.Bounds{Events: 1 << 30}

// appendAll appends records that must all be new, and returns the last seq.
func appendAll(t testing.TB, l *Log, records []*eventlog.Record) (last uint64) {
	t.Helper()
	for i, o := range l.Append(t.Context(), "t", 0, records) {
		if o.Err != nil || o.Duplicate {
			t.Fatalf("event %q: %+v; want it to be new", records[i].ID, o)
		}
		last = o.Seq
	}
	return last
}

// wantLeft: Read and Scan both find exactly the events with these seqs, and the partition's extent
// says so.
func wantLeft(t testing.TB, l *Log, first, head uint64) {
	t.Helper()
	read, err := l.Read(t.Context(), "t", 0, 0, everything)
	require.NoError(t, err)
	for i, r := range read {
		if r.Seq != first+uint64(i) {
			t.Fatalf("event %d has seq %d; want %d", i, r.Seq, first+uint64(i))
		}
	}
	scanned, err := l.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything)
	if want := int(head + 1 - first); err != nil || len(read) != want || len(scanned) != want {
		t.Fatalf("%d events are read, %d scanned, %v; want %d", len(read), len(scanned), err, want)
	}
	extents, err := l.Extents(t.Context(), "t")
	if err != nil || extents[0] != (eventlog.Extent{First: first, Head: head, Removed: first - 1}) {
		t.Errorf("extent %+v, %v; want %d to %d", extents, err, first, head)
	}
}

func TestTruncate(t *testing.T) {
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, Options{Dir: "data", FS: disk})
	defer func() { l.Close() }()
	ensure(t, l, "t", 1)
	const n = 1010
	appendAll(t, l, eventlogtest.Events("e", n, eventlogtest.Keyed("k")))

	for _, c := range []struct{ upTo, first uint64 }{
		{0, 1}, {3, 4}, {3, 4}, {1, 4}, {507, 508}, {n - 1, n}, {n + 100, n + 1}, {n + 100, n + 1},
	} {
		if err := l.Truncate(t.Context(), "t", 0, c.upTo); err != nil {
			t.Fatalf("up to %d: %v", c.upTo, err)
		}
		wantLeft(t, l, c.first, n)
		cut := mustOpen(t, Options{Dir: "data", FS: disk.CrashClone(vfs.CrashCloneCfg{})})
		wantLeft(t, cut, c.first, n)
		require.NoError(t, cut.Close())
	}
	if _, err := l.Lookup(t.Context(), "t", "e-000"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("Lookup of a removed event: %v; want ErrNotFound", err)
	}
	if _, err := eventlogtest.LatestByKey(t.Context(), l, "t", "k"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("LatestByKey of a removed key: %v; want ErrNotFound", err)
	}
	// No id is remembered, and seqs go on.
	if last := appendAll(t, l, eventlogtest.Events("e", 5, eventlogtest.Payload("2"))); last != n+5 {
		t.Errorf("the last seq is %d; want %d", last, n+5)
	}
	if err := l.Truncate(t.Context(), "none", 0, 1); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("Truncate of no topic: %v; want ErrNotFound", err)
	}
}

// TestTruncateUnderPowerCuts cuts the power while one goroutine appends and another takes events
// away behind it. The events left are always one run of seqs without a hole, up to the newest event
// that was answered.
func TestTruncateUnderPowerCuts(t *testing.T) { testkit.Rounds(t, truncateUnderPowerCuts) }

func truncateUnderPowerCuts(t *testing.T, seed uint64) {
	for _, kept := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d percent of what was not synced is kept", kept), func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			l := mustOpen(t, Options{Dir: "data", FS: disk})
			defer l.Close()
			ensure(t, l, "t", 1)
			rng := rand.New(rand.NewPCG(seed, uint64(kept)))
			var answered, removed uint64
			for round := range 20 {
				var work sync.WaitGroup
				upTo := removed + (answered-removed)*uint64(round%4)/3
				work.Go(func() {
					if err := l.Truncate(t.Context(), "t", 0, upTo); err != nil {
						t.Errorf("Truncate: %v", err)
					}
				})
				last := appendAll(t, l, eventlogtest.Events(fmt.Sprint("r", round), 7, eventlogtest.Keyed("k")))
				early := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
				checkRun(t, early, removed, last)
				work.Wait()
				answered, removed = last, upTo
				late := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
				if first := checkRun(t, late, removed, last); first != removed+1 {
					t.Errorf("the first seq is %d; up to %d was removed", first, removed)
				}
			}
		})
	}
}

// checkRun opens what a power cut has left, and returns the first seq.
func checkRun(t *testing.T, disk vfs.FS, removed, head uint64) uint64 {
	t.Helper()
	l := mustOpen(t, Options{Dir: "data", FS: disk})
	defer l.Close()
	extents, err := l.Extents(t.Context(), "t")
	require.NoError(t, err)
	first := extents[0].First
	if first <= removed {
		t.Errorf("seq %d has come back; up to %d was removed for good", first, removed)
	}
	wantLeft(t, l, first, head)
	return first
}

// TestTruncateWhileIdsRepeat: an id that is appended again and again while its event is removed is
// stored at most once at any time, and never half.
func TestTruncateWhileIdsRepeat(t *testing.T) {
	l := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem()})
	defer l.Close()
	ensure(t, l, "t", 1)
	const rounds = 60
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			for range rounds {
				for _, o := range l.Append(t.Context(), "t", 0, eventlogtest.Events("e", 5, eventlogtest.Keyed("k"))) {
					if o.Err != nil {
						t.Errorf("Append: %v", o.Err)
					}
				}
			}
		})
	}
	work.Go(func() {
		for range rounds {
			extents, err := l.Extents(t.Context(), "t")
			if err == nil {
				err = l.Truncate(t.Context(), "t", 0, extents[0].Head)
			}
			if err != nil {
				t.Errorf("Truncate: %v", err)
			}
		}
	})
	work.Wait()
	last := l.Append(t.Context(), "t", 0, eventlogtest.Events("e", 5, eventlogtest.Keyed("k")))
	read, err := l.Read(t.Context(), "t", 0, 0, everything)
	if err != nil || len(read) != 5 {
		t.Fatalf("%d events are left, %v; want 5, each id once", len(read), err)
	}
	wantLeft(t, l, read[0].Seq, read[4].Seq)
	for i, o := range last {
		if r, err := l.Lookup(t.Context(), "t", fmt.Sprintf("e-%03d", i)); err != nil || r.Seq != o.Seq {
			t.Errorf("id %d is found at %+v, %v; want seq %d", i, r, err, o.Seq)
		}
	}
}
