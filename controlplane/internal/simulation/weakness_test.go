package simulation

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// weakStore is a store with a weakness.
type weakStore struct {
	store.Store
	append func(s store.Store, ctx context.Context, c store.Commit) error
}

func (w weakStore) Append(ctx context.Context, c store.Commit) error {
	return w.append(w.Store, ctx, c)
}

// TestWeaknesses puts weaknesses into the store, and expects that schedules find each: one that has
// found it in each of 20 runs, or a later one. Each is run several times, since the order of
// goroutines differs from run to run.
func TestWeaknesses(t *testing.T) {
	const (
		most  = 200 // runs
		times = 20  // of each schedule
	)
	for _, weakness := range []struct {
		is     string
		seed   uint64
		append func(s store.Store, ctx context.Context, c store.Commit) error
	}{
		{"a conflict is taken for one's own", 42, func(s store.Store, ctx context.Context, c store.Commit) error {
			if err := s.Append(ctx, c); !errors.Is(err, store.ErrConflict) {
				return err
			}
			return nil
		}},
		{"an unknown outcome is taken for success", 42, func(s store.Store, ctx context.Context, c store.Commit) error {
			if err := s.Append(ctx, c); !errors.Is(err, store.ErrUnavailable) {
				return err
			}
			return nil
		}},
		{"one's own commit is taken for another's", 77, func(s store.Store, ctx context.Context, c store.Commit) error {
			err := s.Append(ctx, c)
			if errors.Is(err, store.ErrUnavailable) {
				return store.ErrConflict
			}
			return err
		}},
	} {
		t.Run(weakness.is, func(t *testing.T) {
			t.Parallel()
			for n := range uint64(most) {
				res := runPlan(t, newPlan(weakness.seed+n/times), func(s store.Store) store.Store { return weakStore{s, weakness.append} })
				if len(res.problems) > 0 {
					t.Logf("run %d: %s", n+1, res.problems[0])
					return
				}
			}
			t.Errorf("%d runs find nothing", most)
		})
	}
}
