package catalog

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// A change interrupts the check that runs, and goes before those that wait. Checks begin again, and are refused where changes come
// each time.
func TestChangesGoBeforeChecks(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes int
		want    error
	}{
		{"one", 1, nil},
		{"some", maxInterrupted - 1, nil},
		{"again and again", maxInterrupted, &wire.Error{Code: wire.Overloaded}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns, begun, made := NewTurns(), 0, 0
				var all sync.WaitGroup
				defer all.Wait()
				all.Go(func() {
					err := turns.Check(t.Context(), func(ctx context.Context) error {
						if begun++; begun <= tc.changes {
							<-ctx.Done()
						}
						return ctx.Err()
					})
					if !errors.Is(err, tc.want) {
						t.Errorf("error %v; want %v", err, tc.want)
					}
				})
				synctest.Wait()
				all.Go(func() {
					require.NoError(t, turns.Check(t.Context(), func(context.Context) error {
						turns.mu.Lock()
						defer turns.mu.Unlock()
						if turns.changes > 0 {
							t.Errorf("a check that waits begins before %d changes that wait", turns.changes)
						}
						return nil
					}))
				})
				for range tc.changes {
					require.NoError(t, turns.Change(t.Context(), func() error { made++; return nil }))
					if made < tc.changes {
						synctest.Wait()
					}
				}
			})
		})
	}
}

// A check whose client leaves ends, while it waits and while it runs.
func TestAbandonedChecksEnd(t *testing.T) {
	turns := NewTurns()
	ctx, leave := context.WithCancel(t.Context())
	err := turns.Check(ctx, func(ctx context.Context) error {
		leave()
		if err := turns.Check(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("while it waits: %v", err)
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("while it runs: %v", err)
	}
	require.NoError(t, turns.Change(t.Context(), func() error { return nil }))
}
