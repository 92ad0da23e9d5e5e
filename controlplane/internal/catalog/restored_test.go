package catalog

import (
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// restore takes the store back to a revision, as if from a backup.
func (f *fakeStore) restore(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits = f.commits[:revision:revision]
}

// A store that was restored from a backup while a control plane runs goes on with another history:
// nothing is made of both.
func TestRestoredWhileRunning(t *testing.T) {
	f := newFake()
	old := catalogOn(t, f)
	for _, document := range []string{`{"name":"a"}`, `{"name":"b"}`, `{"name":"c"}`} {
		mustPut(t, old, document)
	}
	f.restore(1)
	_, err := old.Put(t.Context(), Author{}, pol(t, `{"name":"d"}`), nil, false)
	if e := wire.AsError(err); e.Code != wire.StoreUnavailable || len(f.all()) != 1 {
		t.Errorf("a change while the store is behind: %v", err)
	}
	if old.State().Revision != 3 || !errors.Is(old.follow(t.Context()), store.ErrUnavailable) {
		t.Errorf("in force is revision %d; want 3 to stay", old.State().Revision)
	}
	other := catalogOn(t, f)
	mustPut(t, other, `{"name":"x"}`)
	mustPut(t, other, `{"name":"y"}`)
	for _, document := range []string{`{"name":"b","paused":true}`, `{"name":"z"}`} {
		mustPut(t, old, document)
		require.NoError(t, other.follow(t.Context()))
		assertSame(t, old, other)
		mustPut(t, other, `{"name":"x","partitions":`+string(rune('1'+other.State().Revision))+`}`)
	}
	require.NoError(t, old.follow(t.Context()))
	assertSame(t, old, other)
	if _, err := old.History(t.Context(), "c"); wire.AsError(err).Code != wire.NotFound {
		t.Errorf("the history of what was never there: %v", err)
	}
}

// A new series has the same policies, comes after all that were, also after those that the store
// forgot, and is in the audit log.
func TestNewSeries(t *testing.T) {
	f := newFake()
	one, two := catalogOn(t, f), catalogOn(t, f)
	mustPut(t, one, `{"name":"a"}`)
	first, err := one.NewSeries(t.Context(), Author{Name: "alice"})
	if err != nil || first.Series <= 0 || first.Revision != 2 || first.Find("a") == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	if err := two.follow(t.Context()); err != nil || two.State().Series != first.Series {
		t.Errorf("another control plane: %+v, %v", two.State(), err)
	}
	assertSame(t, one, two)
	mustPut(t, two, `{"name":"b"}`)
	second, err := two.NewSeries(t.Context(), Author{Name: "bob"})
	if err != nil || second.Series <= first.Series || catalogOn(t, f).State().Series != second.Series {
		t.Errorf("series %d after %d, %v", second.Series, first.Series, err)
	}
	records, _, err := two.Audit(t.Context(), 1<<40, 100)
	if err != nil || len(records) != 4 || records[0].Action != store.NewSeries || records[0].By != "bob" || records[1].Name != "b" {
		t.Errorf("%+v, %v", records, err)
	}
	f.restore(1)
	third, err := catalogOn(t, f).NewSeries(t.Context(), Author{})
	if err != nil || third.Series < first.Series || third.Revision != 2 {
		t.Errorf("after a restore: %+v, %v", third, err)
	}
	if _, _, err := one.Audit(t.Context(), 3, 100); err != nil {
		t.Error(err)
	}
}

func assertSame(t *testing.T, a, b *Catalog) {
	t.Helper()
	one, two := a.State(), b.State()
	if one.Revision != two.Revision || len(one.Entries) != len(two.Entries) {
		t.Fatalf("revisions %d and %d, with %d and %d policies", one.Revision, two.Revision, len(one.Entries), len(two.Entries))
	}
	for i := range one.Entries {
		if x, y := &one.Entries[i], &two.Entries[i]; x.Version != y.Version || !x.Policy.Equal(&y.Policy) {
			t.Errorf("%+v and %+v", x, y)
		}
	}
}
