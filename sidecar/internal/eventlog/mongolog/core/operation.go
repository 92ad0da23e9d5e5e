package core

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ErrClosed is the error of operations after Close.
var ErrClosed = fmt.Errorf("the log is closed: %w", eventlog.ErrUnavailable)

// Begin starts an operation: it refuses calls after Close and contexts that are over, and makes
// sure that the store is prepared. The caller calls end when the operation is over. The context
// ends with the caller's and after Timeout.
func (s *Store) Begin(ctx context.Context) (_ context.Context, end func(), _ error) {
	return s.BeginWithin(ctx, s.Timeout)
}

// LongTimeout is for an operation that may have to go through a large part of a collection.
func (s *Store) LongTimeout() time.Duration { return 12 * s.Timeout }

// BeginWithin is Begin with another timeout.
func (s *Store) BeginWithin(ctx context.Context, timeout time.Duration) (_ context.Context, end func(), _ error) {
	return s.beginAs(ctx, func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := s.Clock.WithTimeoutCause(ctx, timeout, eventlog.ErrTimeout)
		return ctx, cancel
	})
}

// BeginSteps is Begin for an operation of many steps. Each call of renew begins Timeout again, so
// that a slow server that makes progress does not count as away.
func (s *Store) BeginSteps(ctx context.Context) (_ context.Context, renew, end func(), err error) {
	var timer clock.Timer
	ctx, end, err = s.beginAs(ctx, func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(ctx)
		timer = s.Clock.AfterFunc(s.Timeout, func() { cancel(eventlog.ErrTimeout) })
		return ctx, func() {
			timer.Stop()
			cancel(nil)
		}
	})
	return ctx, func() { timer.Reset(s.Timeout) }, end, err
}

// beginAs begins an operation with the context that limited makes.
func (s *Store) beginAs(
	ctx context.Context, limited func(context.Context) (context.Context, func()),
) (_ context.Context, end func(), _ error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if !s.Join() {
		return nil, nil, ErrClosed
	}
	ctx, cancel := limited(ctx)
	end = func() {
		cancel()
		s.Leave()
	}
	if err := s.prepare(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return ctx, end, nil
}

// Within runs one step of a long operation as an operation of its own, so that Timeout bounds the
// step.
func (s *Store) Within(ctx context.Context, op string, step func(ctx context.Context) error) error {
	ctx, end, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := step(ctx); err != nil {
		return s.Unavailable(ctx, op, err)
	}
	s.Reached()
	return nil
}

// WithinSession is Within, with a causally consistent session.
func (s *Store) WithinSession(ctx context.Context, op string, step func(ctx context.Context) error) error {
	return s.Within(ctx, op, func(ctx context.Context) error { return s.Causally(ctx, step) })
}

// Ping asks the primary for a reply.
func (s *Store) Ping(ctx context.Context) error {
	return s.Within(ctx, "ping", func(ctx context.Context) error { return s.client.Ping(ctx, nil) })
}

// Sync returns nil unless the store is closed: writes are durable already.
func (s *Store) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}
