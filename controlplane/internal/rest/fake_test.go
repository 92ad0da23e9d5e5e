package rest

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/require"
)

// memory is a store that forgets.
type memory struct {
	mu      sync.Mutex
	commits []store.Commit
}

func (m *memory) After(_ context.Context, revision int64) ([]store.Commit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.commits[revision:]), nil
}

func (m *memory) At(_ context.Context, revision int64) (store.Commit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.commits[revision-1], nil
}

func (m *memory) Append(_ context.Context, c store.Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Revision != int64(len(m.commits))+1 {
		return store.ErrConflict
	}
	m.commits = append(m.commits, c)
	return nil
}

func (m *memory) Await(ctx context.Context, _ int64) error         { <-ctx.Done(); return ctx.Err() }
func (m *memory) Close() error                                     { return nil }
func (m *memory) Forget(context.Context, map[int64][]string) error { return nil }

// newCatalog is one that is empty.
func newCatalog(t testing.TB) *catalog.Catalog { return catalogOn(t, &memory{}) }

func catalogOn(t testing.TB, s store.Store) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Open(context.Background(), catalog.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return c
}

// failing fails whatever reaches the store.
type failing struct {
	Catalog
	err error
}

func (f failing) History(context.Context, string) ([]catalog.Version, error) { return nil, f.err }
func (f failing) Audit(context.Context, int64, int) ([]catalog.Record, int64, error) {
	return nil, 0, f.err
}
func (f failing) Put(context.Context, catalog.Author, policy.Policy, catalog.Permits, bool) (catalog.Applied, error) {
	return catalog.Applied{}, f.err
}
func (f failing) Delete(context.Context, catalog.Author, string, catalog.Permits, bool) (catalog.Applied, error) {
	return catalog.Applied{}, f.err
}
func (f failing) Rollback(context.Context, catalog.Author, string, int64, catalog.Permits) (catalog.Entry, error) {
	return catalog.Entry{}, f.err
}
func (f failing) NewSeries(context.Context, catalog.Author) (*catalog.State, error) {
	return nil, f.err
}
func (f failing) Apply(context.Context, catalog.Author, []policy.Policy, bool, bool) (catalog.Applied, error) {
	return catalog.Applied{}, f.err
}
