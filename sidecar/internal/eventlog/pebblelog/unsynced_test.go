package pebblelog

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
)

// slow is an injector whose log syncs, while it is held, take until release.
type slow struct {
	mu   sync.Mutex
	gate chan struct{} // nil: not held
}

func (s *slow) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *slow) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = nil
}

func (s *slow) MaybeError(op errorfs.Op) error {
	if !slices.Contains(syncs, op.Kind) {
		return nil
	}
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return nil
}

func (s *slow) String() string { return "slow" }

// holdSyncs has the disk hold syncs up, once no commit waits for one: an append is answered a
// moment before its own does not any more.
func holdSyncs(l *Log, disk *slow) {
	for len(l.commits.slots) > 0 {
		runtime.Gosched()
	}
	disk.hold()
}

// underWay waits until n commits are in Pebble and wait for their sync.
func underWay(l *Log, n int) {
	for len(l.commits.slots) < n {
		runtime.Gosched()
	}
}

// readable says which way of reading finds which event.
func readable(t *testing.T, l *Log) (found []string) {
	t.Helper()
	page, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 10})
	for _, e := range page {
		found = append(found, "Read "+e.ID)
	}
	scanned, err2 := l.Scan(t.Context(), "t", eventlog.ScanQuery{Descending: true}, eventlog.Bounds{Events: 10})
	for _, e := range scanned {
		found = append(found, "Scan "+e.ID)
	}
	latest, err3 := eventlogtest.LatestByKey(t.Context(), l, "t", "k")
	require.NoError(t, errors.Join(err, err2, err3))
	found = append(found, "LatestByKey "+latest.ID)
	if e, err := l.Lookup(t.Context(), "t", "new"); err == nil {
		found = append(found, "Lookup "+e.ID)
	} else if !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("Lookup: %v", err)
	}
	return found
}

// TestNothingIsReadableBeforeItsSync holds a sync up while an event is in Pebble already, and looks
// for the event in every way there is.
func TestNothingIsReadableBeforeItsSync(t *testing.T) {
	disk := &slow{}
	l := mustOpen(t, Options{Dir: "data", FS: errorfs.Wrap(vfs.NewMem(), disk)})
	defer l.Close()
	ensure(t, l, "t", 2)
	old := eventlogtest.Event("old", eventlogtest.Keyed("k"))
	l.Append(t.Context(), "t", 0, []*eventlog.Record{old})

	holdSyncs(l, disk)
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan eventlog.Outcome)
	event := func() *eventlog.Record { return eventlogtest.Event("new", eventlogtest.Keyed("k")) }
	go func() {
		fresh := event()
		fresh.FreshID = true
		first <- l.Append(ctx, "t", 0, []*eventlog.Record{fresh})[0]
	}()
	for inPebble := false; !inPebble; runtime.Gosched() {
		tp, err := l.catalog.find("t")
		if err == nil {
			_, inPebble, err = l.idEntry(tp, "new")
		}
		require.NoError(t, err)
	}

	if got := readable(t, l); !slices.Equal(got, []string{"Read old", "Scan old", "LatestByKey old"}) {
		t.Errorf("before the sync: %q", got)
	}
	if e, err := l.Extents(t.Context(), "t"); err != nil || e[0].Head != 1 {
		t.Errorf("Extents = %+v, %v; want Head 1", e, err)
	}
	for _, from := range []string{wire.FromLatest, wire.FromTS, wire.FromAfterID} {
		p := eventlog.Position{From: from, TS: old.TS + 1, After: eventlog.Point{TS: old.TS, ID: "old"}}
		if got, err := l.Seek(t.Context(), "t", p); err != nil || !slices.Equal(got, []uint64{2, 1}) {
			t.Errorf("Seek(%+v) = %v, %v; want [2 1]", p, got, err)
		}
	}

	// Another append of the id, to another partition, waits for the verdict.
	second := make(chan eventlog.Outcome)
	go func() { second <- l.Append(t.Context(), "t", 1, []*eventlog.Record{event()})[0] }()
	underWay(l, 2) // its barrier

	giveUp()
	if got := <-first; !errors.Is(got.Err, eventlog.ErrUnavailable) || !errors.Is(got.Err, context.Canceled) {
		t.Errorf("the append that gave up: %+v; want ErrUnavailable and Canceled", got)
	}
	select {
	case got := <-second:
		t.Errorf("a duplicate of what is not durable was answered: %+v", got)
	default:
	}
	disk.release()
	if got := <-second; !got.Duplicate || got.Partition != 0 || got.Seq != 2 {
		t.Errorf("the second append: %+v; want a duplicate of seq 2", got)
	}
	if got := readable(t, l); !slices.Equal(got, []string{"Read old", "Read new", "Scan old", "Scan new", "LatestByKey new", "Lookup new"}) {
		t.Errorf("after the sync: %q", got)
	}
}

// TestSavesDoNotWaitForSyncs holds the syncs up: an owner takes its epoch only once they go on, but
// saves, and reads what it saved, meanwhile.
func TestSavesDoNotWaitForSyncs(t *testing.T) {
	disk := &slow{}
	l := mustOpen(t, Options{Dir: "data", FS: errorfs.Wrap(vfs.NewMem(), disk)})
	defer l.Close()
	ensure(t, l, "t", 2)
	old := eventlog.Epoch{GroupPartition: eventlog.GroupPartition{Topic: "t", Group: "g"}, Number: 1, Owner: "n"}
	fresh := old
	fresh.Partition = 1
	require.NoError(t, l.TakeEpochs(t.Context(), []eventlog.Epoch{old})[0])

	holdSyncs(l, disk)
	taken := make(chan error, 1)
	go func() { taken <- l.TakeEpochs(t.Context(), []eventlog.Epoch{fresh})[0] }()
	for told := 0; told < 2; runtime.Gosched() { // until it waits for its sync
		told = len(latest(t, l))
	}
	for range 3 {
		old.Progress.Cursor++
		require.NoError(t, l.SaveEpochs(t.Context(), []eventlog.Epoch{old}, nil))
	}
	if got := latest(t, l); got[0].Progress.Cursor != 3 {
		t.Errorf("LatestEpochs = %+v; want cursor 3", got)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	synced := make(chan error, 1)
	go func() { synced <- l.Sync(ctx) }()
	giveUp()
	if err := <-synced; !errors.Is(err, context.Canceled) {
		t.Errorf("a Sync that gave up: %v; want Canceled", err)
	}
	select {
	case err := <-taken:
		t.Errorf("TakeEpochs returned %v before its sync", err)
	default:
	}
	disk.release()
	if err := <-taken; err != nil {
		t.Errorf("TakeEpochs: %v", err)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Errorf("Sync: %v", err)
	}
}

// latest is the epochs of group g.
func latest(t *testing.T, l *Log) []eventlog.Epoch {
	t.Helper()
	epochs, err := l.LatestEpochs(t.Context(), "t", "g")
	require.NoError(t, err)
	return epochs
}
