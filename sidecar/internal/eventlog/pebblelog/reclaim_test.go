package pebblelog

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// segmentFiles counts a folder's segments.
func segmentFiles(t *testing.T, disk vfs.FS) (n int) {
	t.Helper()
	names, err := disk.List(disk.PathJoin("data", "journal"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			n++
		}
	}
	return n
}

// TestSegmentsAreReclaimed removes events in every way there is from a log of many small segments, restarts it in
// between, and looks for the rest.
func TestSegmentsAreReclaimed(t *testing.T) {
	ways := map[string]func(t *testing.T, l *Log) (stays func(n int) bool){
		"retention": func(t *testing.T, l *Log) func(int) bool {
			_, _, err := l.Sweep(t.Context(), "t", eventlog.Retention{UpTo: []uint64{700}, DedupeWindowMS: 1}, 1<<60, 1<<20)
			require.NoError(t, err)
			return func(n int) bool { return n > 700 }
		},
		"erasure": func(t *testing.T, l *Log) func(int) bool {
			var seqs []uint64
			for n := uint64(1); n <= 900; n++ {
				if n%3 != 0 {
					seqs = append(seqs, n)
				}
			}
			_, err := l.Erase(t.Context(), "t", 0, seqs, eventlog.Retention{}, 1)
			require.NoError(t, err)
			return func(n int) bool { return n > 900 || n%3 == 0 }
		},
		"truncation": func(t *testing.T, l *Log) func(int) bool {
			require.NoError(t, l.Truncate(t.Context(), "t", 0, 930))
			return func(n int) bool { return n > 930 }
		},
	}
	for name, remove := range ways {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: "data", FS: vfs.NewCrashableMem(), segmentSize: 4 << 10}
			l := mustOpen(t, o)
			defer func() { l.Close() }()
			ensure(t, l, "t", 1)
			for n := 1; n <= 1000; n++ {
				require.NoError(t, add(t, l, fmt.Sprint(n)))
			}
			full := segmentFiles(t, o.FS)
			stays := remove(t, l)
			require.NoError(t, l.reclaim.run(t.Context()))
			check := func(l *Log) {
				t.Helper()
				events, err := l.Read(t.Context(), "t", 0, 1, everything)
				require.NoError(t, err)
				scanned, err := l.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything)
				require.NoError(t, err)
				want := 0
				for n := 1; n <= 1000; n++ {
					if stays(n) {
						if want >= len(events) || events[want].ID != fmt.Sprint(n) || events[want].Seq != uint64(n) {
							t.Fatalf("event %d is not there", n)
						}
						want++
					}
				}
				if len(events) != want || len(scanned) != want {
					t.Errorf("%d events are read and %d scanned; want %d", len(events), len(scanned), want)
				}
			}
			check(l)
			if left := segmentFiles(t, o.FS); left > full*2/3 {
				t.Errorf("%d of %d segments are left", left, full)
			}
			after := o.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 1))})
			again := mustOpen(t, Options{Dir: "data", FS: after})
			check(again)
			require.NoError(t, again.Close())
			require.NoError(t, l.Close())
			l = mustOpen(t, o)
			check(l)
		})
	}
}

// TestKilledWhileASegmentIsDropped kills the log when the journal has it that a segment is dropped, and the index not yet on the
// disk, and then again at the next start: the one after that needs the segment.
func TestKilledWhileASegmentIsDropped(t *testing.T) {
	kill := func(disk vfs.FS) vfs.FS {
		return disk.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	}
	disk := vfs.FS(vfs.NewCrashableMem())
	l := mustOpen(t, Options{Dir: "data", FS: disk, segmentSize: 4 << 10})
	defer func() { require.NoError(t, l.Close()) }()
	ensure(t, l, "t", 1)
	for n := 1; n <= 200; n++ {
		require.NoError(t, add(t, l, fmt.Sprint(n)))
	}
	require.NoError(t, l.Truncate(t.Context(), "t", 0, 150))
	b := l.db.NewBatch()
	require.NoError(t, b.Set(segmentKey(0), binary.AppendUvarint(nil, segmentDropped), nil))
	require.NoError(t, l.commitSynced(t.Context(), b))
	first := kill(disk)
	again := mustOpen(t, Options{Dir: "data", FS: first, segmentSize: 4 << 10})
	second := kill(first)
	require.NoError(t, again.Close())
	last := mustOpen(t, Options{Dir: "data", FS: second, segmentSize: 4 << 10})
	defer func() { require.NoError(t, last.Close()) }()
	events, err := last.Read(t.Context(), "t", 0, 1, everything)
	if err != nil || len(events) != 50 {
		t.Errorf("%d events, %v; want 50", len(events), err)
	}
	require.NoError(t, last.reclaim.run(t.Context()))
	if names, err := second.List(second.PathJoin("data", "journal")); err != nil || strings.HasPrefix(names[0], "00000000000000000000.") {
		t.Errorf("the dropped segment stays: %v, %v", names, err)
	}
}

// TestSnapshotKeepsSegments: no segment is dropped while a snapshot is open.
func TestSnapshotKeepsSegments(t *testing.T) {
	o := Options{Dir: "data", FS: vfs.NewMem(), segmentSize: 4 << 10}
	l := mustOpen(t, o)
	defer l.Close()
	ensure(t, l, "t", 1)
	for n := range 300 {
		require.NoError(t, add(t, l, fmt.Sprint(n)))
	}
	s, err := l.Snapshot(t.Context(), "t")
	require.NoError(t, err)
	full := segmentFiles(t, o.FS)
	require.NoError(t, l.Truncate(t.Context(), "t", 0, 290))
	require.NoError(t, l.reclaim.run(t.Context()))
	if left := segmentFiles(t, o.FS); left < full {
		t.Errorf("%d of %d segments are left under a snapshot", left, full)
	}
	events, err := s.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything)
	if err != nil || len(events) != 300 {
		t.Errorf("the snapshot has %d events, %v", len(events), err)
	}
	s.Close()
	require.NoError(t, l.reclaim.run(t.Context()))
	if left := segmentFiles(t, o.FS); left > full/2 {
		t.Errorf("%d of %d segments are left without one", left, full)
	}
}

// TestIndexIsMadeAnew removes the index: the journal, which has everything from its beginning, brings it back.
func TestIndexIsMadeAnew(t *testing.T) {
	disk := vfs.NewMem()
	o := Options{Dir: "data", FS: disk, segmentSize: 4 << 10}
	l := mustOpen(t, o)
	ensure(t, l, "t", 1)
	appendAll(t, l, eventlogtest.Events("e", 300, eventlogtest.Keyed("k")))
	require.NoError(t, l.Close())
	require.NoError(t, disk.RemoveAll(disk.PathJoin("data", dbFolder)))
	l = mustOpen(t, o)
	defer l.Close()
	events, err := l.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything)
	if err != nil || len(events) != 300 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// TestAStartReplaysFewSegments: however little of the events is in the index, it is flushed with each new segment, so
// that what a start after a kill reads again is bounded.
func TestAStartReplaysFewSegments(t *testing.T) {
	disk := vfs.NewCrashableMem()
	o := Options{Dir: "data", FS: disk, segmentSize: 4 << 10}
	l := mustOpen(t, o)
	defer func() { require.NoError(t, l.Close()) }()
	ensure(t, l, "t", 1)
	for n := range 800 {
		r := eventlogtest.Event("")
		r.ID, r.FreshID = eventlog.NewTimedID(r.TS+int64(n)), true
		r.TS += int64(n)
		require.NoError(t, l.Append(t.Context(), "t", 0, []*eventlog.Record{r})[0].Err)
	}
	_, end := l.journal.Closed()
	if end < 10*uint64(o.segmentSize) {
		t.Fatalf("the journal has %d bytes", end)
	}
	testkit.Eventually(t, "a flushed index", func() bool {
		db, err := pebble.Open(disk.PathJoin("data", dbFolder), tuning(disk.CrashClone(vfs.CrashCloneCfg{}), &health{log: quiet}))
		require.NoError(t, err)
		defer db.Close()
		position, err := (&Log{db: db}).storedSeq([]byte{kindPosition})
		require.NoError(t, err)
		return position+3*uint64(o.segmentSize) >= end
	})
}
