package pebblelog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
)

// crowded is a disk of which a test says how much is free, and that has no room for what is written
// to some files while it is full.
type crowded struct {
	vfs.FS
	free atomic.Uint64
	full atomic.Bool
	of   []string // endings of the files' names
}

const diskTotal = 10_000

func newCrowded(files ...string) *crowded {
	f := &crowded{of: files}
	f.FS = errorfs.Wrap(vfs.NewMem(), f)
	f.free.Store(diskTotal)
	return f
}

func (f *crowded) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free.Load(), TotalBytes: diskTotal}, nil
}

func (f *crowded) MaybeError(op errorfs.Op) error {
	writes := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpRename ||
		op.Kind == errorfs.OpReuseForWrite
	if f.full.Load() && writes && slices.ContainsFunc(f.of, func(end string) bool { return strings.Contains(op.Path, end) }) {
		return syscall.ENOSPC
	}
	return nil
}

func (f *crowded) String() string { return "crowded" }

// add appends an event to a topic's first partition.
func add(t *testing.T, l *Log, id string) error {
	t.Helper()
	return l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event(id)})[0].Err
}

// wantDisk wants an append refused for want of room: unsure, where it may have been stored all the
// same.
func wantDisk(t *testing.T, when string, err error, unsure bool) {
	t.Helper()
	if _, full := errors.AsType[*eventlog.DiskFullError](err); !full || errors.Is(err, eventlog.ErrUnavailable) != unsure {
		t.Errorf("%s: %v", when, err)
	}
}

// goesOn reads, saves progress and sweeps.
func goesOn(t *testing.T, l *Log, events int, epoch *eventlog.Epoch) {
	t.Helper()
	if recs, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 100}); err != nil || len(recs) != events {
		t.Errorf("Read = %d events, %v; want %d", len(recs), err, events)
	}
	epoch.Progress.Cursor++
	if err := l.SaveEpochs(t.Context(), []eventlog.Epoch{*epoch},
		[]eventlog.Mark{{Topic: "t", Group: "g", ID: "x", ExpiresAt: 1}}); err != nil {
		t.Errorf("SaveEpochs: %v", err)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Errorf("Sync: %v", err)
	}
	if _, _, err := l.SweepMarks(t.Context(), 2, 10); err != nil {
		t.Errorf("SweepMarks: %v", err)
	}
}

func openCrowded(t *testing.T, disk *crowded, low int64) (*Log, *eventlog.Epoch) {
	t.Helper()
	l := mustOpen(t, Options{Dir: "data", FS: disk, LowWater: low})
	ensure(t, l, "t", 1)
	require.NoError(t, add(t, l, "a"))
	e := eventlog.Epoch{GroupPartition: eventlog.GroupPartition{Topic: "t", Group: "g"}, Number: 1, Owner: "n"}
	require.NoError(t, errors.Join(l.TakeEpochs(t.Context(), []eventlog.Epoch{e})...))
	return l, &e
}

// TestLowWater: below the mark nothing is appended, and all else goes on; it is appended again once
// a quarter more than the mark is free.
func TestLowWater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newCrowded()
		l, e := openCrowded(t, disk, 1000)
		defer l.Close()
		var since time.Time
		for _, c := range []struct {
			free  uint64
			short bool
		}{{1000, false}, {999, true}, {1000, true}, {1250, true}, {1251, false}, {1001, false}, {0, true}, {5000, false}} {
			disk.free.Store(c.free)
			time.Sleep(time.Second)
			wasShort := l.space.short.Load()
			if got := l.Space(); got != (Space{Free: int64(c.free), LowWater: 1000, Short: c.short}) {
				t.Errorf("with %d free: %+v", c.free, got)
			}
			if wasShort != c.short {
				since = time.Now()
			}
			if got := l.Since(); !got.Equal(since) {
				t.Errorf("with %d free: since %v, want %v", c.free, got, since)
			}
			if err := add(t, l, "a"); c.short {
				wantDisk(t, "an append", err, false)
				_, err = l.EnsureTopic(t.Context(), "new", 1)
				wantDisk(t, "a new topic", err, false)
			} else if err != nil {
				t.Errorf("with %d free: %v", c.free, err)
			}
			goesOn(t, l, 1, e)
		}
	})
}

// TestLowWaterAuto: a twentieth of the disk, within bounds.
func TestLowWaterAuto(t *testing.T) {
	for total, want := range map[uint64]int64{
		100: 50, 100 << 20: 50 << 20, 1 << 30: 64 << 20, 10 << 30: 512 << 20, 100 << 30: 1 << 30,
	} {
		s := newSpace(Options{FS: sizedDisk{total: total}, Logger: quiet, LowWater: LowWaterAuto})
		if got := s.now(); got.LowWater != want || got.Short {
			t.Errorf("a disk of %d bytes: %+v; want a mark of %d", total, got, want)
		}
	}
}

// sizedDisk is an empty disk.
type sizedDisk struct {
	vfs.FS
	total uint64
}

func (d sizedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.total, TotalBytes: d.total}, nil
}

// TestNoRoomIsWaitedFor: the log answers an append that finds no room soon, as one whose outcome is
// not known, and refuses the next ones. Reading goes on. Once there is room everything goes on,
// without a restart.
func TestNoRoomIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newCrowded(".log")
		l, e := openCrowded(t, disk, 0)
		defer l.Close()
		disk.full.Store(true)
		disk.free.Store(0)
		began := time.Now()
		wantDisk(t, "the append that found no room", add(t, l, "b"), true)
		wantDisk(t, "the next one", add(t, l, "c"), false)
		if took := time.Since(began); took > time.Second {
			t.Errorf("answered after %v", took)
		}
		if recs, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 100}); err != nil || len(recs) != 1 {
			t.Errorf("Read = %d events, %v", len(recs), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.SaveEpochs(ctx, []eventlog.Epoch{*e}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("progress, which goes into the same file: %v; want the context's end", err)
		}
		time.Sleep(time.Hour)
		if err := l.Err(); err != nil || !l.Space().Short {
			t.Errorf("after an hour: %v, %+v", err, l.Space())
		}
		disk.full.Store(false)
		disk.free.Store(diskTotal)
		time.Sleep(time.Second)
		if out := l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event("b")})[0]; out.Err != nil || !out.Duplicate ||
			out.Seq != 2 {
			t.Errorf("what found no room, again: %+v; want a duplicate of seq 2", out)
		}
		if err := add(t, l, "c"); err != nil {
			t.Error(err)
		}
		goesOn(t, l, 3, e)
	})
}

// TestProgressWaitsForRoom: progress waits as well, and fails nothing.
func TestProgressWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newCrowded(".log")
		l, e := openCrowded(t, disk, 0)
		defer l.Close()
		disk.full.Store(true)
		saved := make(chan error)
		go func() { saved <- l.SaveEpochs(t.Context(), []eventlog.Epoch{*e}, nil) }()
		time.Sleep(time.Minute)
		select {
		case err := <-saved:
			t.Errorf("saved: %v", err)
		default:
		}
		disk.full.Store(false)
		if err := <-saved; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		goesOn(t, l, 1, e)
	})
}

// TestTablesWithoutRoomAreWrittenAgain: a flush that finds no room is no failure.
func TestTablesWithoutRoomAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newCrowded(".sst")
		l, e := openCrowded(t, disk, 0)
		defer l.Close()
		disk.full.Store(true)
		flushed, err := l.db.AsyncFlush()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		wantDisk(t, "an append", add(t, l, "b"), false)
		disk.full.Store(false)
		<-flushed
		time.Sleep(time.Second)
		goesOn(t, l, 1, e)
	})
}

// TestShortBetweenAttempts: appends are refused as well while a write that found no room is being
// tried again, and no longer.
func TestShortBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpace(Options{FS: newCrowded(), Logger: quiet})
		for range 3 {
			s.await(syscall.ENOSPC)
			if !s.now().Short {
				t.Fatal("appends are let in before the write was tried again")
			}
		}
		time.Sleep(roomRetry)
		if s.now().Short {
			t.Error("appends are refused though nothing waits for room any more")
		}
	})
}

// TestFullDiskHoldsUpNoStop: Close ends the writes that wait for room. Events that were answered OK
// are there after the next start.
func TestFullDiskHoldsUpNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newCrowded(".log", "MANIFEST")
		l, _ := openCrowded(t, disk, 0)
		disk.full.Store(true)
		wantDisk(t, "an append", add(t, l, "b"), true)
		began := time.Now()
		if err := l.Close(); err == nil {
			t.Error("a log that could not write says nothing")
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("closed after %v", took)
		}

		opened := make(chan error)
		go func() {
			l, err := Open(Options{Dir: "data", FS: disk, Logger: quiet})
			if err == nil {
				defer l.Close()
				_, err = l.Lookup(t.Context(), "t", "a")
			}
			opened <- err
		}()
		time.Sleep(time.Minute)
		disk.full.Store(false)
		if err := <-opened; err != nil {
			t.Errorf("an open that found room at last: %v", err)
		}
	})
}
