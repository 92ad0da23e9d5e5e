package pebblelog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// witness writes down what the log has promised: the seq of every event that was answered OK or
// read.
type witness struct {
	mu   sync.Mutex
	seqs map[string]uint64
}

func (w *witness) saw(id string, seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seqs[id] = seq
}

func (w *witness) promised() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.seqs)
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seqs)
}

// traffic is what goroutines do turn by turn until it is over. It can be held up, so that what they
// write does not grow while somebody looks at it.
type traffic struct {
	hold sync.RWMutex
	over atomic.Bool
}

// turn does something, and reports whether there is another turn.
func (tr *traffic) turn(do func() error) bool {
	tr.hold.RLock()
	defer tr.hold.RUnlock()
	return !tr.over.Load() && do() == nil
}

// TestPowerCut cuts the power again and again under writers and a reader. Events that were answered
// or readable before the power cut are there after it; unsynced data may be lost. Where all is
// kept, it is a kill: then a group's progress is there that was saved and not synced.
func TestPowerCut(t *testing.T) { testkit.Rounds(t, cutPower) }

func cutPower(t *testing.T, seed uint64) {
	for _, kept := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d percent of what was not synced is kept", kept), func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			l := mustOpen(t, Options{Dir: "data", FS: disk, segmentSize: 32 << 10})
			defer l.Close()
			ensure(t, l, "t", 2)
			w := &witness{seqs: map[string]uint64{}}
			var saved, synced atomic.Uint64
			var tr traffic
			var work sync.WaitGroup
			for i := range 4 {
				work.Go(func() { keepAppending(t, l, w, i, &tr) })
			}
			work.Go(func() { keepReading(t, l, w, &tr) })
			work.Go(func() { keepSaving(t, l, &saved, &synced, &tr) })
			rng := rand.New(rand.NewPCG(seed, uint64(kept)))
			for range 10 {
				for enough := w.count() + 20; w.count() < enough && !t.Failed(); {
					runtime.Gosched()
				}
				promised, cursor := w.promised(), synced.Load()
				if kept == 100 {
					cursor = saved.Load()
				}
				after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
				tr.hold.Lock()
				checkPromised(t, after, promised, cursor)
				tr.hold.Unlock()
			}
			tr.over.Store(true)
			work.Wait()
		})
	}
}

func ensure(t testing.TB, l *Log, topic string, partitions int) {
	t.Helper()
	if _, err := l.EnsureTopic(t.Context(), topic, partitions); err != nil {
		t.Fatal(err)
	}
}

func keepAppending(t *testing.T, l *Log, w *witness, writer int, tr *traffic) {
	n := 0
	for tr.turn(func() error {
		batches := make([]eventlog.Batch, 2)
		for p := range batches {
			prefix := fmt.Sprintf("w%d-%d-%d", writer, n, p)
			batches[p] = eventlog.Batch{Topic: "t", Partition: p, Records: eventlogtest.Events(prefix, 1+n%3, eventlogtest.Keyed("k"))}
		}
		n++
		l.AppendAll(t.Context(), batches)
		for _, b := range batches {
			for i, o := range b.Outcomes {
				if o.Err != nil {
					t.Errorf("AppendAll: %v", o.Err)
					return o.Err
				}
				w.saw(b.Records[i].ID, o.Seq)
			}
		}
		return nil
	}) {
	}
}

func keepReading(t *testing.T, l *Log, w *witness, tr *traffic) {
	next := uint64(1)
	for tr.turn(func() error {
		events, err := l.Read(t.Context(), "t", 0, next, eventlog.Bounds{Events: 100})
		if err != nil {
			t.Errorf("Read: %v", err)
		}
		for _, e := range events {
			w.saw(e.ID, e.Seq)
			next = e.Seq + 1
		}
		return err
	}) {
	}
}

// keepSaving moves a group's cursor and marks what it passes; saved and synced are the cursors that
// were promised to survive a kill and a power cut.
func keepSaving(t *testing.T, l *Log, saved, synced *atomic.Uint64, tr *traffic) {
	e := eventlog.Epoch{GroupPartition: eventlog.GroupPartition{Topic: "t", Group: "g"}, Number: 1, Owner: "n"}
	if err := l.TakeEpochs(t.Context(), []eventlog.Epoch{e})[0]; err != nil {
		t.Errorf("TakeEpochs: %v", err)
		return
	}
	for tr.turn(func() error {
		e.Progress.Cursor++
		mark := eventlog.Mark{Topic: "t", Group: "g", ID: fmt.Sprint(e.Progress.Cursor), ExpiresAt: 1}
		if err := l.SaveEpochs(t.Context(), []eventlog.Epoch{e}, []eventlog.Mark{mark}); err != nil {
			t.Errorf("SaveEpochs: %v", err)
			return err
		}
		saved.Store(e.Progress.Cursor)
		if e.Progress.Cursor%3 != 0 {
			return nil
		}
		if err := l.Sync(t.Context()); err != nil {
			t.Errorf("Sync: %v", err)
			return err
		}
		synced.Store(e.Progress.Cursor)
		return nil
	}) {
	}
}

// checkPromised opens what a power cut has left and looks for everything that was promised before.
func checkPromised(t *testing.T, disk vfs.FS, promised map[string]uint64, cursor uint64) {
	t.Helper()
	l := mustOpen(t, Options{Dir: "data", FS: disk})
	defer l.Close()
	extents, err := l.Extents(t.Context(), "t")
	require.NoError(t, err)
	found := map[string]uint64{}
	for p := range extents {
		events, err := l.Read(t.Context(), "t", p, 1, eventlog.Bounds{Events: 1 << 30})
		require.NoError(t, err)
		for i, e := range events {
			found[e.ID] = e.Seq
			if e.Seq != uint64(i+1) {
				t.Fatalf("event %d of partition %d has seq %d: there is a hole", i, p, e.Seq)
			}
		}
	}
	for id, seq := range promised {
		if found[id] != seq {
			t.Errorf("event %q was promised at seq %d and is at %d after the power cut", id, seq, found[id])
		}
	}
	scanned, err := l.Scan(t.Context(), "t", eventlog.ScanQuery{}, eventlog.Bounds{Events: 1 << 30})
	if err != nil || len(scanned) != len(found) {
		t.Errorf("a scan finds %d events, %v; want %d", len(scanned), err, len(found))
	}
	if cursor > 0 {
		checkProgress(t, l, cursor)
	}
}

// checkProgress looks for a group's cursor, or a later one, and whether no progress has survived
// its mark.
func checkProgress(t *testing.T, l *Log, promised uint64) {
	t.Helper()
	epochs := latest(t, l)
	if len(epochs) != 1 || epochs[0].Progress.Cursor < promised {
		t.Fatalf("epochs %+v; the cursor %d was promised", epochs, promised)
	}
	cursor := epochs[0].Progress.Cursor
	marked, err := l.Marked(t.Context(), "t", "g", []string{fmt.Sprint(cursor)}, 0)
	if err != nil || !marked[0] {
		t.Errorf("the mark of cursor %d is missing, %v", cursor, err)
	}
}

// failing is an injector that fails the operations it names while it is armed.
type failing struct {
	armed atomic.Bool
	file  string // part of the names of files it is about
	kinds []errorfs.OpKind
}

var errDisk = errors.New("the disk says no")

func (f *failing) MaybeError(op errorfs.Op) error {
	if f.armed.Load() && strings.Contains(op.Path, f.file) && slices.Contains(f.kinds, op.Kind) {
		return errDisk
	}
	return nil
}

func (f *failing) String() string { return "failing" }

var syncs = []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}

// TestFailedWrite: after one failed write or sync the log answers nothing OK any more, though the
// disk recovers. A restart finds every event that was answered OK.
func TestFailedWrite(t *testing.T) {
	cases := []struct {
		name  string
		file  string
		kinds []errorfs.OpKind
		flush bool // whether it takes a flush to meet the failure
	}{
		{"sync of the write-ahead log", ".log", syncs, false},
		{"write of the write-ahead log", ".log", []errorfs.OpKind{errorfs.OpFileWrite}, false},
		{"sync of the manifest", "MANIFEST", syncs, true},
		{"write of the manifest", "MANIFEST", []errorfs.OpKind{errorfs.OpFileWrite}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			fail := &failing{file: c.file, kinds: c.kinds}
			l := mustOpen(t, Options{Dir: "data", FS: errorfs.Wrap(disk, fail)})
			ensure(t, l, "t", 1)
			w := &witness{seqs: map[string]uint64{}}
			sound := eventlogtest.Events("sound", 50)
			for i, o := range l.Append(t.Context(), "t", 0, sound) {
				w.saw(sound[i].ID, o.Seq)
			}

			fail.armed.Store(true)
			if c.flush {
				if _, err := l.db.AsyncFlush(); err != nil {
					t.Fatal(err)
				}
				for l.health.err() == nil { // the flush is Pebble's own goroutine
					runtime.Gosched()
				}
			}
			doubtful := manyAppends(t, l, "doubtful")
			fail.armed.Store(false)
			later := manyAppends(t, l, "later")
			if _, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 1}); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("Read: %v; want ErrUnavailable", err)
			}
			if err := l.Close(); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("Close: %v; want ErrUnavailable", err)
			}

			for _, kept := range []int{0, 50, 100} {
				clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(1, 2))})
				checkPromised(t, clone, w.promised(), 0)
				checkRepeat(t, clone, append(doubtful, later...))
			}
		})
	}
}

// manyAppends appends from many goroutines, none of which may succeed.
func manyAppends(t *testing.T, l *Log, prefix string) []*eventlog.Record {
	t.Helper()
	records := eventlogtest.Events(prefix, 32)
	var work sync.WaitGroup
	for _, r := range records {
		work.Go(func() {
			if o := l.Append(t.Context(), "t", 0, []*eventlog.Record{r})[0]; !errors.Is(o.Err, eventlog.ErrUnavailable) {
				t.Errorf("Append on a failed disk: %+v; want ErrUnavailable", o)
			}
		})
	}
	work.Wait()
	return records
}

// checkRepeat: appending events again whose append failed stores each of them once.
func checkRepeat(t *testing.T, disk vfs.FS, records []*eventlog.Record) {
	t.Helper()
	l := mustOpen(t, Options{Dir: "data", FS: disk})
	defer l.Close()
	for _, o := range l.Append(t.Context(), "t", 0, records) {
		if o.Err != nil {
			t.Errorf("Append again: %v", o.Err)
		}
	}
	events, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 1 << 30})
	require.NoError(t, err)
	times := map[string]int{}
	for _, e := range events {
		times[e.ID]++
	}
	for _, r := range records {
		if times[r.ID] != 1 {
			t.Errorf("event %q is stored %d times", r.ID, times[r.ID])
		}
	}
}

// TestFailedProgress is TestFailedWrite for a write or sync of the progress journal. Progress that
// was saved before is there after a restart.
func TestFailedProgress(t *testing.T) {
	for name, kinds := range map[string][]errorfs.OpKind{"sync": syncs, "write": {errorfs.OpFileWrite}} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			fail := &failing{file: ".log", kinds: kinds}
			l := mustOpen(t, Options{Dir: "data", FS: errorfs.Wrap(disk, fail)})
			ensure(t, l, "t", 1)
			e := eventlog.Epoch{GroupPartition: eventlog.GroupPartition{Topic: "t", Group: "g"}, Number: 1, Owner: "n"}
			require.NoError(t, l.TakeEpochs(t.Context(), []eventlog.Epoch{e})[0])
			e.Progress.Cursor = 5
			require.NoError(t, l.SaveEpochs(t.Context(), []eventlog.Epoch{e}, nil))

			fail.armed.Store(true)
			next := e
			next.Progress.Cursor = 6
			err := l.SaveEpochs(t.Context(), []eventlog.Epoch{next}, nil)
			if name == "sync" && err == nil {
				err = l.Sync(t.Context())
			}
			fail.armed.Store(false)
			for call, err := range map[string]error{
				"the call that met the failure": err,
				"Err":                           l.Err(),
				"SaveEpochs":                    l.SaveEpochs(t.Context(), []eventlog.Epoch{next}, nil),
				"Sync":                          l.Sync(t.Context()),
				"TakeEpochs":                    l.TakeEpochs(t.Context(), []eventlog.Epoch{next})[0],
			} {
				if !errors.Is(err, eventlog.ErrUnavailable) {
					t.Errorf("%s: %v; want ErrUnavailable", call, err)
				}
			}
			manyAppends(t, l, "later")
			if err := l.Close(); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("Close: %v; want ErrUnavailable", err)
			}
			killed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
			l = mustOpen(t, Options{Dir: "data", FS: killed})
			defer l.Close()
			if got := latest(t, l); len(got) != 1 || got[0].Progress.Cursor < 5 {
				t.Errorf("after a restart: %+v; cursor 5 was saved", got)
			}
		})
	}
}
