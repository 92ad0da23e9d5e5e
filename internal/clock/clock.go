// Package clock is the time source of a sidecar's parts in a simulation, so that it can stop the
// time of one sidecar while that of others goes on. It must not know why its callers wait.
//
// A time that Now returns has two readings, as package time's have. Sub, Before and After go by the
// monotonic one, which on Linux stands still while the machine is suspended. The wall clock,
// t.Round(0), goes on, and may be set. A wait that has to end in a suspension as well goes by the
// reading that says that more time has passed.
package clock

import (
	"context"
	"time"
)

// Clock tells the time and waits. The zero value is the system's. It is safe for concurrent use.
type Clock struct{ source Source }

// Source is another clock than the system's.
type Source interface {
	// Now is as time.Now.
	Now() time.Time
	// AfterFunc is as time.AfterFunc.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a timer of AfterFunc: see time.Timer.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// System is the clock of package time.
func System() Clock { return Clock{} }

// New makes a clock that takes its time from a source.
func New(s Source) Clock { return Clock{source: s} }

// Now is as time.Now.
func (c Clock) Now() time.Time {
	if c.source == nil {
		return time.Now()
	}
	return c.source.Now()
}

// Since is how long ago t was.
func (c Clock) Since(t time.Time) time.Duration {
	if c.source == nil {
		return time.Since(t)
	}
	return c.source.Now().Sub(t)
}

// Until is how long it is until t.
func (c Clock) Until(t time.Time) time.Duration { return -c.Since(t) }

// AfterFunc calls f in a goroutine of its own after d.
func (c Clock) AfterFunc(d time.Duration, f func()) Timer {
	if c.source == nil {
		return time.AfterFunc(d, f)
	}
	return c.source.AfterFunc(d, f)
}

// Sleep waits for d. It reports whether ctx has not ended meanwhile.
func (c Clock) Sleep(ctx context.Context, d time.Duration) bool { return c.SleepUnless(ctx, d, nil) }

// SleepUnless waits for d, or until early says that it is enough. It reports whether ctx has not
// ended meanwhile.
func (c Clock) SleepUnless(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	var over <-chan time.Time
	if c.source == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	} else {
		fired := make(chan time.Time)
		timer := c.source.AfterFunc(d, func() { close(fired) })
		defer timer.Stop()
		over = fired
	}
	select {
	case <-over:
	case <-early:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
