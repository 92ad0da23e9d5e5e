package catalog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/require"
)

// fault is what becomes of one Append.
type fault int

const (
	none    fault = iota
	beaten        // somebody else commits first
	unheard       // it is stored, and the answer is lost
	dropped       // it is lost
	late          // it is stored at the next call, if its revision is free then
)

// fakeStore is a store in memory whose Append goes wrong as it is told.
type fakeStore struct {
	mu      sync.Mutex
	commits []store.Commit
	grown   chan struct{}
	faults  []fault
	pending []store.Commit
	// intrude makes the commit of somebody else.
	intrude func(revision int64) store.Commit
	// away is what everything fails with.
	away error
}

func newFake() *fakeStore { return &fakeStore{grown: make(chan struct{})} }

func (f *fakeStore) add(c store.Commit) {
	f.commits = append(f.commits, c)
	close(f.grown)
	f.grown = make(chan struct{})
}

// arrive stores what is late.
func (f *fakeStore) arrive() {
	for _, c := range f.pending {
		if c.Revision == int64(len(f.commits))+1 {
			f.add(c)
		}
	}
	f.pending = nil
}

func (f *fakeStore) After(_ context.Context, revision int64) ([]store.Commit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrive()
	if f.away != nil || revision >= int64(len(f.commits)) {
		return nil, f.away
	}
	return slices.Clone(f.commits[revision:min(revision+3, int64(len(f.commits)))]), nil
}

func (f *fakeStore) At(_ context.Context, revision int64) (store.Commit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrive()
	switch {
	case f.away != nil:
		return store.Commit{}, f.away
	case revision < 1 || revision > int64(len(f.commits)):
		return store.Commit{}, store.ErrNone
	}
	return f.commits[revision-1], nil
}

func (f *fakeStore) Append(_ context.Context, c store.Commit) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrive()
	if f.away != nil {
		return f.away
	}
	what := none
	if len(f.faults) > 0 {
		what, f.faults = f.faults[0], f.faults[1:]
	}
	next := int64(len(f.commits)) + 1
	switch {
	case what == dropped:
		return store.ErrUnavailable
	case what == late:
		f.pending = append(f.pending, c)
		return store.ErrUnavailable
	case c.Revision < next:
		if f.commits[c.Revision-1].Token == c.Token {
			return nil
		}
		return store.ErrConflict
	case c.Revision > next:
		return fmt.Errorf("commit %d cannot follow %d", c.Revision, next-1)
	case what == beaten:
		f.add(f.intrude(next))
		return store.ErrConflict
	}
	f.add(c)
	if what == unheard {
		return store.ErrUnavailable
	}
	return nil
}

func (f *fakeStore) Forget(_ context.Context, changes map[int64][]string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return f.away
	}
	for revision, names := range changes {
		f.commits[revision-1].Forget(names)
	}
	return nil
}

func (f *fakeStore) Await(ctx context.Context, revision int64) error {
	for {
		f.mu.Lock()
		f.arrive()
		there, grown := int64(len(f.commits)) > revision, f.grown
		f.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeStore) Close() error { return nil }

// all are the commits so far, the late ones too.
func (f *fakeStore) all() []store.Commit {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrive()
	return slices.Clone(f.commits)
}

var noon = time.Date(2000, 1, 1, 12, 0, 0, 1_999_999, time.FixedZone("", 3600))

// catalogOn opens a catalog whose clock stands and which does not wait.
func catalogOn(t interface {
	require.T
	Context() context.Context
}, s store.Store) *Catalog {
	c, err := Open(t.Context(), Config{Store: s, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() time.Time { return noon }})
	require.NoError(t, err)
	c.wait = func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }
	return c
}

func pol(t require.T, document string) policy.Policy {
	p, err := policy.ParsePolicy([]byte(document))
	require.NoError(t, err)
	return p
}

func pols(t testing.TB, documents ...string) []policy.Policy {
	list := make([]policy.Policy, len(documents))
	for i, d := range documents {
		list[i] = pol(t, d)
	}
	return list
}
