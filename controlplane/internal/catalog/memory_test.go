package catalog

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// large is a policy of about size bytes. The race detector takes time for each of them.
func large(name string, n, size int) string {
	return fmt.Sprintf(`{"name":%q,"schema":{"json_schema":{"description":"%d %s"}}}`, name, n, strings.Repeat("x", size))
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Earlier versions of policies take no memory, only current ones.
func TestHistoryIsOnDisk(t *testing.T) {
	s, err := boltstore.Open(t.TempDir())
	require.NoError(t, err)
	defer s.Close()
	c := catalogOn(t, s)
	before := heap()
	const versions, size = 100, 100_000
	for i := range versions {
		mustPut(t, c, large("a", i, size))
	}
	if grown := heap() - before; grown > 3<<20 {
		t.Errorf("%d versions of a policy of 100 KB take %d bytes", versions, grown)
	}
	again := catalogOn(t, s)
	if grown := heap() - before; grown > 6<<20 {
		t.Errorf("read again they take %d bytes", grown)
	}

	// Answers are bounded, too, and the log is complete.
	list, err := again.History(t.Context(), "a")
	if err != nil || len(list) < 10 || len(list) > maxAnswerBytes/size+1 || list[0].Version != versions {
		t.Errorf("%d versions, %v", len(list), err)
	}
	total := 0
	for next := int64(1 << 50); next > 0; {
		var records []Record
		if records, next, err = again.Audit(t.Context(), next, 1000); err != nil || len(records) > maxAnswerBytes/size {
			t.Fatalf("%d records, %v", len(records), err)
		}
		total += len(records)
	}
	if total != versions {
		t.Errorf("the audit log has %d changes", total)
	}
	if e, err := again.Rollback(t.Context(), Author{}, "a", 1, nil); err != nil || !strings.Contains(text(&e), `"0 x`) {
		t.Errorf("the first version: %v", err)
	}
}

func TestPoliciesAreBounded(t *testing.T) {
	c := catalogOn(t, newFake())
	n := 0
	for ; n < 200; n++ {
		_, err := c.Put(t.Context(), Author{}, pol(t, large(fmt.Sprint("p", n), n, 250_000)), nil, false)
		if code(err) == wire.PayloadTooLarge {
			break
		}
		require.NoError(t, err)
	}
	if n == 200 || n < MaxPoliciesBytes/260_000 {
		t.Fatalf("%d policies of 250 KB", n)
	}
	mustPut(t, c, `{"name":"p1"}`)
	mustPut(t, c, large("more", 1, 250_000))
	if _, err := c.Apply(t.Context(), Author{}, pols(t, large("p1", 1, 250_000), large("p2", 2, 250_000)), false,
		true); code(err) != wire.PayloadTooLarge {
		t.Errorf("a dry run: %v", err)
	}
}

// Versions that are too old to be brought back are said so.
func TestVersionsThatAreTooOld(t *testing.T) {
	c := catalogOn(t, newFake())
	for i := range MaxVersions + 1 {
		mustPut(t, c, fmt.Sprintf(`{"name":"a","publish":{"rate":%d}}`, i+1))
	}
	if _, err := c.Rollback(t.Context(), Author{}, "a", 1, nil); code(err) != wire.NotFound ||
		!strings.Contains(err.Error(), "versions 2 to 1001") {
		t.Errorf("too old: %v", err)
	}
	if list, err := c.History(t.Context(), "a"); err != nil || len(list) != MaxVersions {
		t.Errorf("%d versions, %v", len(list), err)
	}
}

// TestHistoryIsBounded: policies that are changed again and again take no more of the disk than the
// bound, and older versions are removed first. Authors and times stay, and so do the policies in
// force, for every reader.
func TestHistoryIsBounded(t *testing.T) {
	for what, s := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return newFake() },
		"a file": func(t *testing.T) store.Store {
			s, err := boltstore.Open(t.TempDir())
			require.NoError(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := s(t)
			c := catalogOn(t, s)
			const size = 25_000
			c.history.most = 10 * size
			mustPut(t, c, `{"name":"old","publish":{"rate":7}}`)
			mustPut(t, c, `{"name":"*","publish":{"rate":10,"burst":10}}`)
			mustPut(t, c, `{"name":"*","publish":{"rate":20,"burst":20}}`)
			const versions = 40
			for i := range versions {
				mustPut(t, c, large("a", i, size))
			}
			commits, stored := int64(0), 0
			for {
				page, err := s.After(t.Context(), commits)
				if err != nil || len(page) == 0 {
					break
				}
				for _, commit := range page {
					commits = commit.Revision
					for _, ch := range commit.Changes {
						stored += len(ch.Policy)
					}
				}
			}
			if most := int(c.history.most) + 30_000; stored > most || commits != versions+3 {
				t.Errorf("%d commits with %d bytes of policies; want at most %d", commits, stored, most)
			}
			again := catalogOn(t, s)
			for _, c := range []*Catalog{c, again} {
				if st := c.State(); len(st.Entries) != 3 || st.Find("old") == nil || st.Find("a").Version != versions {
					t.Fatalf("in force: %+v", st.Entries)
				}
				list, err := c.History(t.Context(), "a")
				if err != nil || len(list) != versions || list[0].Entry == nil || list[versions-1].Entry != nil || list[versions-1].By != "alice" {
					t.Errorf("%d versions, %v", len(list), err)
				}
				records, _, err := c.Audit(t.Context(), 1<<50, 1000)
				if err != nil || len(records) != versions+3 {
					t.Errorf("%d records, %v", len(records), err)
				}
			}
			if _, err := again.Rollback(t.Context(), root, "a", 1, nil); code(err) != wire.NotFound ||
				!strings.Contains(err.Error(), "not kept any more") {
				t.Errorf("a version that is forgotten: %v", err)
			}
			if _, err := again.Rollback(t.Context(), root, "a", versions-1, nil); err != nil {
				t.Errorf("the version before: %v", err)
			}
		})
	}
}

// TestVersionsAreBounded: of each policy the latest versions are kept.
func TestVersionsAreBounded(t *testing.T) {
	f := newFake()
	c := catalogOn(t, f)
	const more = 5
	for i := range MaxVersions + more {
		mustPut(t, c, fmt.Sprintf(`{"name":"a","publish":{"rate":%d}}`, i+1))
	}
	kept := 0
	for _, commit := range f.all() {
		if commit.Changes[0].Policy != nil {
			kept++
		}
	}
	if kept != MaxVersions {
		t.Errorf("%d versions are kept, want %d", kept, MaxVersions)
	}
}
