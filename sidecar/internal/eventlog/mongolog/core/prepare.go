package core

import (
	"context"
	"errors"
)

func (e *UnsupportedError) Error() string { return "the store cannot be used: " + e.Reason }

// prepare prepares the store if that was not done. One call does this, and concurrent calls wait
// for it.
func (s *Store) prepare(ctx context.Context) error {
	x := &s.setup
	if x.facts.Load() != nil {
		return nil
	}
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return s.Unavailable(ctx, "connect", ctx.Err())
	}
	if x.facts.Load() != nil {
		return nil
	}
	facts, err := s.Prepare(ctx)
	if err == nil {
		x.facts.Store(&facts)
		return nil
	}
	if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported && x.refusal == nil {
		x.refusal = err
		close(x.unusable)
	}
	return s.Unavailable(ctx, "connect", err)
}

// AwaitRefusal waits until the store turns out to be one that the log can never use, and returns
// the *UnsupportedError. It returns nil when ctx ends.
func (s *Store) AwaitRefusal(ctx context.Context) error {
	select {
	case <-s.setup.unusable:
		return s.setup.refusal
	case <-ctx.Done():
		return nil
	}
}

// StoreID identifies the store, with the same id for every sidecar on it. It is empty until the
// server was reached first.
func (s *Store) StoreID() string {
	if facts := s.setup.facts.Load(); facts != nil {
		return facts.StoreID
	}
	return ""
}

// Sharded reports whether the server is a mongos; it must be called within an operation.
func (s *Store) Sharded() bool { return s.setup.facts.Load().Sharded }

// Hint names an index to read by. If the store lacks some indexes, the server chooses. It must be
// called within an operation.
func (s *Store) Hint(index any) any {
	if s.setup.facts.Load().Unindexed {
		return nil
	}
	return index
}
