package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/controlplane/internal/store/mongostore"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

func mustPut(t *testing.T, c *Catalog, document string) Entry {
	t.Helper()
	done, err := c.Put(t.Context(), Author{Name: "alice"}, pol(t, document), nil, false)
	require.NoError(t, err)
	return *done.Changes[0].To
}

func code(err error) wire.Code {
	if err == nil {
		return ""
	}
	return wire.AsError(err).Code
}

// fieldsOf returns the bad fields of an error, ascending.
func fieldsOf(t *testing.T, err error) []string {
	t.Helper()
	if code(err) != wire.InvalidPolicy {
		t.Fatalf("got %v, want invalid_policy", err)
	}
	var fields []string
	for _, f := range wire.AsError(err).Fields {
		fields = append(fields, f.Field)
		if !strings.Contains(err.Error(), f.Field+": "+f.Message) {
			t.Errorf("the sentence %q does not have %+v", err, f)
		}
	}
	slices.Sort(fields)
	return fields
}

// Clients see the fields of what they sent by their own names, and policies that a change would
// break by theirs.
func TestFieldsInErrors(t *testing.T) {
	f := newFake()
	c := catalogOn(t, f)
	mustPut(t, c, `{"name":"a*","delivery":{"backoff":{"max":"20m"}}}`)
	mustPut(t, c, `{"name":"ab","delivery":{"backoff":{"min":"10m"}}}`)
	mustPut(t, c, `{"name":"ac","delivery":{"backoff":{"min":"900s"}}}`)
	mustPut(t, c, `{"name":"ab","delivery":{"backoff":{"min":"1000s"}}}`)
	before := c.State()
	put := func(document string) error {
		_, err := c.Put(t.Context(), Author{}, pol(t, document), nil, false)
		return err
	}
	remove := func(name string) error {
		_, err := c.Delete(t.Context(), Author{}, name, nil, false)
		return err
	}
	apply := func(prune bool, documents ...string) error {
		_, err := c.Apply(t.Context(), Author{}, pols(t, documents...), prune, false)
		return err
	}
	_, seed := c.Seed(t.Context(), pols(t, `{"name":"a"}`, `{"name":"a"}`))
	for i, check := range []struct {
		err  error
		want string
	}{
		{put(`{"name":"ad","delivery":{"backoff":{"min":"30m"}}}`), "delivery.backoff.min"},
		{put(`{"name":"a*"}`), `policies["ab"].delivery.backoff.min policies["ac"].delivery.backoff.min`},
		{put(`{"name":"a*","publish":{"burst":0},"delivery":{"backoff":{"max":"950s"}}}`), `policies["ab"].delivery.backoff.min publish.burst`},
		{put(`{}`), "name"},
		{remove("a*"), `policies["ab"].delivery.backoff.min policies["ac"].delivery.backoff.min`},
		{apply(false, `{"name":"ok"}`, `{"name":"x","publish":{"burst":0}}`, `{"name":"a*","delivery":{"backoff":{"max":"950s"}}}`),
			`policies["ab"].delivery.backoff.min policies[1].publish.burst`},
		{apply(true, `{"name":"ab","delivery":{"backoff":{"min":"1000s"}}}`), `policies[0].delivery.backoff.min`},
		{apply(false, `{}`, `{"name":"x"}`, `{"name":"x"}`), "policies[0].name policies[2].name"},
		{seed, "policies[1].name"},
	} {
		if got := strings.Join(fieldsOf(t, check.err), " "); got != check.want {
			t.Errorf("%d: got %s, want %s", i, got, check.want)
		}
	}
	if c.State() != before || len(f.all()) != 4 {
		t.Error("what was refused has changed something")
	}
}

func TestRollback(t *testing.T) {
	c := catalogOn(t, newFake())
	mustPut(t, c, `{"name":"a","partitions":1}`)
	mustPut(t, c, `{"name":"a","partitions":2}`)
	if _, err := c.Delete(t.Context(), Author{Name: "bob"}, "a", nil, false); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int64]wire.Code{0: wire.NotFound, 3: wire.NotFound, 4: wire.NotFound, -1: wire.NotFound} {
		if _, err := c.Rollback(t.Context(), Author{}, "a", version, nil); code(err) != want {
			t.Errorf("version %d: %v", version, err)
		}
	}
	if _, err := c.Rollback(t.Context(), Author{}, "never", 1, nil); code(err) != wire.NotFound {
		t.Errorf("of a policy that never was: %v", err)
	}
	e, err := c.Rollback(t.Context(), Author{Name: "carol"}, "a", 1, nil)
	if err != nil || e.Version != 4 || e.UpdatedBy != "carol" || text(&e) != `{"name":"a","partitions":1}` ||
		e.UpdatedAt != noon.UTC().Truncate(time.Millisecond) {
		t.Errorf("got %+v, %v", e, err)
	}
	versions, err := c.History(t.Context(), "a")
	if err != nil || len(versions) != 4 {
		t.Fatalf("history %+v, %v", versions, err)
	}
	back, deletion := versions[0], versions[1]
	if back.To != 1 || back.Action != store.RolledBack || deletion.Entry != nil || deletion.By != "bob" {
		t.Errorf("history %+v", versions)
	}
	if got, err := c.Get("a"); err != nil || got.Version != 4 {
		t.Errorf("Get: %+v, %v", got, err)
	}
	if _, err := c.Get("b"); code(err) != wire.NotFound {
		t.Errorf("Get of what is not there: %v", err)
	}
}

func TestAuditKeepsCommitsWhole(t *testing.T) {
	c := catalogOn(t, newFake())
	mustPut(t, c, `{"name":"a"}`)
	if _, err := c.Apply(t.Context(), Author{}, pols(t, `{"name":"b"}`, `{"name":"c"}`, `{"name":"d"}`), false, false); err != nil {
		t.Fatal(err)
	}
	mustPut(t, c, `{"name":"e"}`)
	for _, check := range []struct {
		before int64
		limit  int
		want   string
		next   int64
	}{{100, 1, "e", 3}, {3, 1, "b c d", 2}, {100, 2, "e b c d", 2}, {100, 4, "e b c d", 2}, {100, 5, "e b c d a", 0}, {2, 9, "a", 0},
		{1, 9, "", 0}, {0, 9, "", 0}} {
		records, next, err := c.Audit(t.Context(), check.before, check.limit)
		var names []string
		for _, r := range records {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != check.want || next != check.next {
			t.Errorf("before %d, limit %d: %s, next %d, %v", check.before, check.limit, got, next, err)
		}
	}
}

// The outcome of a commit whose answer is lost is found out.
func TestLostAnswers(t *testing.T) {
	for name, check := range map[string]struct {
		faults  []fault
		want    wire.Code
		commits int
	}{
		"stored, unheard":   {[]fault{unheard}, "", 1},
		"dropped":           {[]fault{dropped}, "", 1},
		"dropped twice":     {[]fault{dropped, dropped}, "", 1},
		"late":              {[]fault{late}, "", 1},
		"late to the end":   {[]fault{dropped, dropped, late}, wire.StoreUnavailable, 1},
		"dropped to no end": {[]fault{dropped, dropped, dropped}, wire.StoreUnavailable, 0},
		"beaten":            {[]fault{beaten, beaten, unheard}, "", 3},
	} {
		f := newFake()
		f.intrude = func(revision int64) store.Commit {
			return store.Commit{Revision: revision, Changes: []store.Change{{Name: "z", Version: revision, Policy: []byte(`{"name":"z"}`)}}}
		}
		c := catalogOn(t, f)
		f.faults = check.faults
		done, err := c.Put(t.Context(), Author{Name: "alice"}, pol(t, `{"name":"a"}`), nil, false)
		created := err == nil && done.Changes[0].Action == "create"
		if code(err) != check.want || created != (err == nil) || len(f.all()) != check.commits {
			t.Errorf("%s: created %v, %v, %d commits", name, created, err, len(f.all()))
		}
		if err != nil && (wire.AsError(err).RetryAfter <= 0 || !strings.Contains(err.Error(), "may have been made or not")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAlwaysBeaten(t *testing.T) {
	f := newFake()
	f.intrude = func(revision int64) store.Commit {
		return store.Commit{Revision: revision, Changes: []store.Change{{Name: "z", Version: revision, Policy: []byte(`{"name":"z"}`)}}}
	}
	c := catalogOn(t, f)
	f.faults = slices.Repeat([]fault{beaten}, maxLost)
	if _, err := c.Put(t.Context(), Author{}, pol(t, `{"name":"a"}`), nil, false); code(err) != wire.StoreUnavailable ||
		!strings.Contains(err.Error(), "other changes came first") {
		t.Errorf("got %v", err)
	}
}

func TestStoreAway(t *testing.T) {
	f := newFake()
	f.away = fmt.Errorf("%w: no route to 10.0.0.1", store.ErrUnavailable)
	if _, err := Open(t.Context(), Config{Store: f}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open: %v", err)
	}
	f.away = nil
	c := catalogOn(t, f)
	mustPut(t, c, `{"name":"a"}`)
	f.away = fmt.Errorf("%w: no route to 10.0.0.1", store.ErrUnavailable)
	_, putErr := c.Put(t.Context(), Author{}, pol(t, `{"name":"b"}`), nil, false)
	_, dryErr := c.Apply(t.Context(), Author{}, pols(t, `{"name":"b"}`), false, true)
	_, deleteErr := c.Delete(t.Context(), Author{}, "a", nil, false)
	for _, err := range []error{putErr, dryErr, deleteErr} {
		if code(err) != wire.StoreUnavailable || strings.Contains(err.Error(), "10.0.0.1") ||
			!strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := c.Get("a"); err != nil {
		t.Errorf("what is in force: %v", err)
	}
	f.away = store.ErrTooLarge
	if _, err := c.Put(t.Context(), Author{}, pol(t, `{"name":"b"}`), nil, false); code(err) != wire.PayloadTooLarge {
		t.Errorf("too large: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.turns.turn.Lock(t.Context()))
	if _, err := c.Put(ended, Author{}, pol(t, `{"name":"b"}`), nil, false); !errors.Is(err, context.Canceled) {
		t.Errorf("without its turn: %v", err)
	}
	c.turns.turn.Unlock()
}

// An unreadable commit is never in force in part, and is not skipped.
func TestCommitsOfOthersThatCannotBeRead(t *testing.T) {
	for name, changes := range map[string][]store.Change{
		"a field of a newer version": {{Name: "b", Version: 1, Policy: []byte(`{"name":"b"}`)},
			{Name: "c", Version: 1, Policy: []byte(`{"name":"c","colour":"blue"}`)}},
		"another name":                     {{Name: "b", Version: 1, Policy: []byte(`{"name":"c"}`)}},
		"policies that do not go together": {{Name: "b", Version: 1, Policy: []byte(`{"name":"b","publish":{"burst":0}}`)}},
		"not JSON":                         {{Name: "b", Version: 1, Policy: []byte(`{`)}},
	} {
		f := newFake()
		c := catalogOn(t, f)
		mustPut(t, c, `{"name":"a"}`)
		before := c.State()
		f.mu.Lock()
		f.add(store.Commit{Revision: 2, Changes: changes})
		f.mu.Unlock()
		if err := c.follow(t.Context()); err == nil || c.State() != before {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Put(t.Context(), Author{}, pol(t, `{"name":"d"}`), nil, false); err == nil || len(f.all()) != 2 {
			t.Errorf("%s: a change on top of it: %v", name, err)
		}
	}
}

func TestSeedOnce(t *testing.T) {
	f := newFake()
	var group sync.WaitGroup
	seeded := make(chan bool, 4)
	for i := range cap(seeded) {
		c := catalogOn(t, f)
		group.Go(func() {
			did, err := c.Seed(t.Context(), pols(t, fmt.Sprintf(`{"name":"a","partitions":%d}`, i+1), `{"name":"*"}`))
			if err != nil {
				t.Error(err)
			}
			seeded <- did
			if len(c.State().Entries) != 2 {
				t.Errorf("%d policies", len(c.State().Entries))
			}
		})
	}
	group.Wait()
	count := 0
	for range cap(seeded) {
		if <-seeded {
			count++
		}
	}
	commits := f.all()
	if count != 1 || len(commits) != 1 || commits[0].Changes[0].Action != store.Seeded || commits[0].By != "--policies" {
		t.Errorf("%d say that they seeded: %+v", count, commits)
	}
	c := catalogOn(t, f)
	if _, err := c.Apply(t.Context(), Author{}, nil, true, false); err != nil {
		t.Fatal(err)
	}
	if did, err := c.Seed(t.Context(), pols(t, `{"name":"a"}`)); did || err != nil { // empty, not new
		t.Errorf("a store without policies was seeded: %v, %v", did, err)
	}
}

// Two catalogs on one store follow each other, and their watchers miss nothing.
func TestRun(t *testing.T) {
	f := newFake()
	a, b := catalogOn(t, f), catalogOn(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, c := range []*Catalog{a, b} {
		group.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	watched := make(chan int64, 1)
	group.Go(func() {
		for {
			s, changed := b.Watch()
			if s.Revision == 20 {
				watched <- s.Revision
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range 10 {
		mustPut(t, a, fmt.Sprintf(`{"name":"a","partitions":%d}`, i+1))
		mustPut(t, b, fmt.Sprintf(`{"name":"b","partitions":%d}`, i+1))
	}
	select {
	case <-watched:
	case <-time.After(20 * time.Second):
		t.Error("the watcher did not see the last state")
	}
	cancel()
	group.Wait()
	if s := b.State(); len(s.Entries) != 2 || s.Entries[0].Version != 10 || s.Entries[0].UpdatedBy != "alice" {
		t.Errorf("got %+v", s.Entries)
	}
}

// Run reports trouble once and goes on when it is over.
func TestRunThroughTrouble(t *testing.T) {
	f := newFake()
	a, b := catalogOn(t, f), catalogOn(t, f)
	tries := make(chan struct{})
	b.wait = func(ctx context.Context, _ time.Duration) bool {
		select {
		case tries <- struct{}{}:
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	mustPut(t, a, `{"name":"a"}`)
	f.mu.Lock()
	f.away = store.ErrUnavailable
	f.mu.Unlock()
	go func() { done <- b.Run(ctx) }()
	for range 3 {
		<-tries
	}
	f.mu.Lock()
	f.away = nil
	f.mu.Unlock()
	for _, changed := b.Watch(); b.State().Revision == 0; {
		select {
		case <-tries:
		case <-changed:
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A reopened store has the same content.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	var before *State
	for round := range 2 {
		s, err := boltstore.Open(dir)
		require.NoError(t, err)
		c := catalogOn(t, s)
		if round == 0 {
			if _, err := c.Apply(t.Context(), Author{Name: "alice\xff"},
				pols(t, `{"name":"*","schema":{"json_schema":{"pattern":"<\u0041>"}}}`, `{"name":"a","paused":true}`), false, false); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Delete(t.Context(), Author{Name: "bob"}, "a", nil, false); err != nil {
				t.Fatal(err)
			}
			before = c.State()
		} else if after := c.State(); after.Revision != before.Revision || !reflect.DeepEqual(after.Entries, before.Entries) ||
			after.Entries[0].UpdatedBy != "alice\uFFFD" {
			t.Errorf("got  %+v\nwant %+v", after.Entries, before.Entries)
		}
		require.NoError(t, s.Close())
	}
}

// A change through one control plane is in force at another one within a second; on a busy machine
// one of a few is.
func TestTwoOnMongoDB(t *testing.T) {
	server := mongotest.Shared(t)
	url := server.URI(server.NewDatabase(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	var catalogs [2]*Catalog
	for i := range catalogs {
		s, err := mongostore.Open(mongostore.Options{URL: url})
		require.NoError(t, err)
		defer s.Close()
		catalogs[i] = catalogOn(t, s)
		group.Go(func() { catalogs[i].Run(ctx) })
	}
	defer cancel()
	quickest := time.Minute
	for i := range 6 {
		here, there := catalogs[i%2], catalogs[1-i%2]
		e := mustPut(t, here, fmt.Sprintf(`{"name":"a","partitions":%d}`, i+1))
		committed := time.Now()
		for {
			s, changed := there.Watch()
			if found := s.Find("a"); found != nil && found.Version == e.Version {
				break
			}
			select {
			case <-changed:
			case <-time.After(20 * time.Second):
				t.Fatal("the change does not arrive")
			}
		}
		quickest = min(quickest, time.Since(committed))
	}
	if quickest > time.Second {
		t.Errorf("the change arrived after %v", quickest)
	}
}
