package pebblelog

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// LowWaterAuto stands for a twentieth of the disk, but at least 64 MiB, which is more than Pebble
// needs to write its memtables, and at most 1 GiB or half of the disk.
const LowWaterAuto = -1

const (
	minAutoLowWater = 64 << 20
	maxAutoLowWater = 1 << 30
	// spaceEvery is how often the free space is read while it is several times the mark. Otherwise
	// each append reads it.
	spaceEvery = 200 * time.Millisecond
	// roomRetry is how long a write that found no room on the disk waits before it is tried again.
	roomRetry = 250 * time.Millisecond
)

// space knows whether there is room on the disk. Below the low-water mark appends are refused, so
// that the rest of the disk is for everything else. Appends are admitted again once a quarter of
// the mark more is free. If the disk becomes full nevertheless, since other programs fill it too,
// the writes that Pebble depends on wait for room, as on a slow disk; see guardedFile.
type space struct {
	fsys     vfs.FS
	dir      string
	lowWater int64
	log      *slog.Logger
	giveUp   <-chan struct{} // once closed, ends all waits

	looked    atomic.Int64 // when, in nanoseconds since the epoch
	free, low atomic.Int64
	short     atomic.Bool
	changed   atomic.Int64 // when short did, in nanoseconds since the epoch; 0: never

	mu      sync.Mutex
	waiting int           // writes
	until   time.Time     // until then the last write that waited may find no room again
	full    chan struct{} // closed while some write waits
	over    chan struct{} // closed by stop
}

func newSpace(o Options) *space {
	return &space{
		fsys: o.FS, dir: o.Dir, lowWater: o.LowWater, log: o.Logger, giveUp: o.GiveUp,
		full: make(chan struct{}), over: make(chan struct{}),
	}
}

// Space is the state of the disk under a log, in bytes. All are 0 if the file system does not tell.
type Space struct {
	Free, LowWater int64
	Short          bool // appends are refused
}

// now reads the free space, unless another call just has.
func (s *space) now() Space {
	now, last := time.Now().UnixNano(), s.looked.Load()
	if (now-last >= int64(spaceEvery) || s.free.Load() < 4*s.low.Load()) && s.looked.CompareAndSwap(last, now) {
		s.look()
	}
	return Space{Free: s.free.Load(), LowWater: s.low.Load(), Short: s.short.Load()}
}

func (s *space) look() {
	usage, err := s.fsys.GetDiskUsage(s.dir)
	if err != nil {
		return // as it was
	}
	low, free := s.lowWater, int64(usage.AvailBytes)
	if low == LowWaterAuto {
		total := int64(usage.TotalBytes)
		low = min(max(total/20, minAutoLowWater), maxAutoLowWater, total/2)
	}
	s.free.Store(free)
	s.low.Store(low)
	switch {
	case low > 0 && free < low:
		if s.setShort(true) {
			s.log.Error("the disk has too little room: publishes are refused until there is more room",
				"folder", s.dir, "free_bytes", free, "low_water_bytes", low)
		}
	case free > low+low/4 && !s.blocked():
		if s.setShort(false) {
			s.log.Info("the disk has room again", "folder", s.dir, "free_bytes", free)
		}
	}
}

// setShort reports whether that is a change.
func (s *space) setShort(is bool) bool {
	if s.short.Swap(is) == is {
		return false
	}
	s.changed.Store(time.Now().UnixNano())
	return true
}

// check returns a *eventlog.DiskFullError while appends are refused.
func (s *space) check() error {
	if now := s.now(); now.Short {
		return &eventlog.DiskFullError{Free: now.Free, LowWater: now.LowWater}
	}
	return nil
}

// blocked reports whether a write waits for room, or has just waited and is being tried again.
func (s *space) blocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting > 0 || time.Now().Before(s.until)
}

// isFull is closed while something waits for room.
func (s *space) isFull() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// await waits for a moment, after which there may be room; false: the waits have ended.
func (s *space) await(cause error) bool {
	s.mu.Lock()
	if s.waiting++; s.waiting == 1 {
		if s.setShort(true) { // before the waiting callers see it and continue
			s.log.Error("no room is left on the disk: writes wait, and publishes are refused, until there is room", "folder", s.dir, "error", cause)
		}
		close(s.full)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting--; s.waiting == 0 {
			s.full, s.until = make(chan struct{}), time.Now().Add(roomRetry)
		}
	}()
	timer := time.NewTimer(roomRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.giveUp:
	case <-s.over:
	}
	return false
}

// stop ends all waits. It is called once.
func (s *space) stop() { close(s.over) }

// retry calls a function until it finds room, or the waits end.
func (s *space) retry(do func() error) error {
	for {
		err := do()
		if !noRoom(err) || !s.await(err) {
			return err
		}
	}
}

// noRoom reports whether an operation failed since the disk is full, and can be repeated.
func noRoom(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || vfs.IsNoSpaceError(err))
}
