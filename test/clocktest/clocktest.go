// Package clocktest has a clock that tests stop and set. It goes by package time, and so by the
// time of a testing/synctest bubble inside of one. A simulation gives each sidecar one of its own.
//
// It stands for the clocks and timers of one process. It does not stop the process's goroutines:
// those that other events wake run on in a pause, so a simulation also has to hold back the
// process's messages. Its times and those of package time are compared by the wall clock.
package clocktest

import (
	"sync"
	"time"
	"unsafe"

	"github.com/sluice-bus/sluice/internal/clock"
)

// Clock is the clock of one process. Its methods are safe for concurrent use.
type Clock struct {
	began time.Time // by package time

	mu        sync.Mutex
	offset    time.Duration // of the wall clock
	stopped   bool
	suspended time.Time     // when the suspension under way began; zero: none is
	lost      time.Duration // to earlier suspensions, of the monotonic clock
	held      []*timer      // fired while the process was stopped
	wakeUp    *time.Timer   // ends the suspension under way
}

// New makes a clock that runs.
func New() *Clock { return &Clock{began: time.Now()} }

// Clock is what the process is given.
func (c *Clock) Clock() clock.Clock { return clock.New(c) }

// Now is the process's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(time.Now())
}

// now is the process's time at a time of package time's.
func (c *Clock) now(at time.Time) time.Time {
	return withReadings(at.Add(c.offset), at.Sub(c.began)-c.lag(at))
}

// lag is by how much the monotonic clock is behind.
func (c *Clock) lag(at time.Time) time.Duration {
	if c.suspended.IsZero() {
		return c.lost
	}
	return c.lost + at.Sub(c.suspended)
}

// withReadings is a time with a wall clock's and a monotonic reading. Package time has no way to
// make one, and its Now leaves the monotonic reading out in a bubble; but since Go 1.9 a Time has
// been these three words. The tests of this package would show if that changed.
func withReadings(wall time.Time, monotonic time.Duration) (t time.Time) {
	const (
		hasMonotonic = 1 << 63
		secondsFrom  = -2682288000 // 1885-01-01, in Unix time
		secondsShift = 30
	)
	words := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	words.wall = hasMonotonic | uint64(wall.Unix()-secondsFrom)<<secondsShift | uint64(wall.Nanosecond())
	words.ext, words.loc = int64(monotonic), time.Local
	return t
}

// Pause stops the process as SIGSTOP does: its clocks go on, its timers do not fire.
func (c *Clock) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// Suspend stops the process for d as a suspended machine does: its timers do not fire, its
// monotonic clock stands still, its wall clock goes on. Resume ends it earlier.
func (c *Clock) Suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.suspended.IsZero() {
		c.suspended = time.Now()
	} else {
		c.wakeUp.Stop()
	}
	var own *time.Timer
	own = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.wakeUp == own {
			c.resume()
		}
	})
	c.wakeUp = own
}

// Resume ends a pause or a suspension. Timers that have become due fire now.
func (c *Clock) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume()
}

func (c *Clock) resume() {
	now := time.Now()
	if !c.suspended.IsZero() {
		c.wakeUp.Stop()
		c.wakeUp, c.lost, c.suspended = nil, c.lag(now), time.Time{}
	}
	c.stopped = false
	for _, t := range c.held {
		if t.over(now) {
			go t.f()
		}
	}
	c.held = nil
}

// SetWall sets the wall clock apart from package time's by offset.
func (c *Clock) SetWall(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}

// timer is one of AfterFunc. The clock's mu guards it.
type timer struct {
	clock   *Clock
	f       func()
	pending bool
	due     time.Time   // by the process's monotonic clock
	inner   *time.Timer // fires when due, or earlier where a suspension comes in between
}

// AfterFunc calls f in a goroutine of its own once d has passed by the monotonic clock and the
// process is not stopped.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &timer{clock: c, f: f}
	t.Reset(d)
	return t
}

func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.pending
	t.pending = false
	t.inner.Stop()
	return was
}

func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.pending
	t.pending, t.due = true, t.clock.now(time.Now()).Add(d)
	t.arm(d)
	return was
}

// arm sets the inner timer in place of the one before.
func (t *timer) arm(d time.Duration) {
	if t.inner != nil {
		t.inner.Stop()
	}
	var own *time.Timer
	own = time.AfterFunc(d, func() {
		c := t.clock
		c.mu.Lock()
		fires := false
		switch {
		case t.inner != own: // it was set again
		case c.stopped:
			c.held = append(c.held, t)
		default:
			fires = t.over(time.Now())
		}
		c.mu.Unlock()
		if fires {
			t.f()
		}
	})
	t.inner = own
}

// over reports whether the timer fires now that it has been looked at; if it is not due yet, it is
// set again.
func (t *timer) over(now time.Time) bool {
	if !t.pending {
		return false
	}
	if left := t.due.Sub(t.clock.now(now)); left > 0 {
		t.arm(left)
		return false
	}
	t.pending = false
	return true
}
