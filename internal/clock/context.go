package clock

import (
	"context"
	"time"
)

// WithTimeout is as context.WithTimeout: see WithTimeoutCause.
func (c Clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.WithTimeoutCause(ctx, d, nil)
}

// WithTimeoutCause is as context.WithTimeoutCause. If the clock is not the system's, receivers of
// the deadline, such as a connection, still use package time: MongoDB's driver uses nothing else.
func (c Clock) WithTimeoutCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if c.source == nil {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	inner, cancel := context.WithCancelCause(ctx)
	t := &timed{Context: inner, expired: &expired{cause}, deadline: time.Now().Add(d), done: make(chan struct{})}
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(t.deadline) {
		t.deadline = earlier
	}
	context.AfterFunc(inner, func() { close(t.done) })
	timer := c.source.AfterFunc(d, func() { cancel(t.expired) })
	return t, func() {
		timer.Stop()
		cancel(nil)
	}
}

// timed is a context that a timer may end. Its Err is DeadlineExceeded then, also for the contexts
// made of it: these would take their Err from the context inside if both had the same Done.
type timed struct {
	context.Context
	expired  *expired
	deadline time.Time
	done     chan struct{}
}

// expired is why the timer ends a context.
type expired struct{ error }

func (e *expired) Unwrap() error { return e.error }

func (t *timed) Deadline() (time.Time, bool) { return t.deadline, true }

func (t *timed) Done() <-chan struct{} { return t.done }

func (t *timed) Err() error {
	if context.Cause(t.Context) == error(t.expired) {
		return context.DeadlineExceeded
	}
	return t.Context.Err()
}

// AfterFunc is for package context, which otherwise needs a goroutine for every context made of
// this one.
func (t *timed) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(t.Context, f) }
