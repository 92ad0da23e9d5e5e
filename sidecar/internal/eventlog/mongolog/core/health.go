package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// Unavailable is the error of an operation that the network or the server made fail; ctx is
// Begin's. If the caller's context has ended, the error is its cause.
func (s *Store) Unavailable(ctx context.Context, op string, err error) error {
	_, broken := errors.AsType[*document.Error](err)
	if broken || errors.Is(err, eventlog.ErrNotFound) { // the server has answered
		s.Reached()
		return fmt.Errorf("%s: %w", op, err)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, eventlog.ErrTimeout):
		err = fmt.Errorf("%s: %w: %w: %w%s%s", op, eventlog.ErrUnavailable, cause, err, Advice(err), s.topology.silent())
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w%s", op, cause, s.topology.silent())
	case cause != nil:
		return fmt.Errorf("%s: %w", op, cause)
	default:
		err = fmt.Errorf("%s: %w: %w%s", op, eventlog.ErrUnavailable, err, Advice(err))
	}
	s.health.Store(&err)
	return err
}

// Reached notes that the server has answered.
func (s *Store) Reached() { s.health.Store(nil) }

// Err is the error of the last operation that asked the server, or nil. A successful Ping clears
// it, so a caller that depends on Err pings while it is not nil.
func (s *Store) Err() error {
	if err := s.health.Load(); err != nil {
		return *err
	}
	return nil
}
