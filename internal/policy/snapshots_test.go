package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/require"
)

func with(partitions int) *policy.Effective {
	e := policy.Defaults()
	e.Partitions = partitions
	return &e
}

func TestResolvedSnapshot(t *testing.T) {
	all := with(1)
	all.Connection.Rate = 7
	s := policy.NewResolvedSnapshot([]policy.Resolved{
		{Name: "orders.created", Version: 4, Source: "test", Effective: with(4)},
		{Name: "orders.*", Version: 3, Source: "test", Effective: with(3)},
		{Name: "o*", Version: 2, Source: "test", Effective: with(2)},
		{Name: "*", Version: 1, Source: "test", Effective: all},
	})
	for topic, want := range map[string]int{"orders.created": 4, "orders.": 3, "orders.x": 3, "orders": 2, "o": 2, "x": 1} {
		if got := s.Topic(topic).Partitions; got != want {
			t.Errorf("%s has %d partitions, want %d", topic, got, want)
		}
	}
	if s.Connection().Rate != 7 {
		t.Errorf("connection: %v", s.Connection())
	}
	list, err := json.Marshal(s.List())
	if want := `[{"name":"*","version":1,"source":"test"},{"name":"o*","version":2,"source":"test"},` +
		`{"name":"orders.*","version":3,"source":"test"},{"name":"orders.created","version":4,"source":"test"}]`; err != nil ||
		string(list) != want {
		t.Errorf("got  %s\nwant %s\n%v", list, want, err)
	}
}

func TestResolvedSnapshotOfNothing(t *testing.T) {
	s := policy.NewResolvedSnapshot(nil)
	if *s.Topic("any") != policy.Defaults() || s.Connection() != policy.Defaults().Connection || len(s.List()) != 0 {
		t.Errorf("got %+v, %+v, %+v", s.Topic("any"), s.Connection(), s.List())
	}
}

func TestConnectionIsOfTheWidestGlobAlone(t *testing.T) {
	narrow := with(2)
	narrow.Connection.Rate = 7
	s := policy.NewResolvedSnapshot([]policy.Resolved{{Name: "a*", Effective: narrow}, {Name: "b", Effective: narrow}})
	if s.Connection() != policy.Defaults().Connection {
		t.Errorf("connection: %v", s.Connection())
	}
}

func TestVersionOfAFileIsText(t *testing.T) {
	v := snapshotOf(t, "[{name: a, partitions: 3}]").List()[0].Version
	text, err := json.Marshal(v)
	if err != nil || string(text) != fmt.Sprintf("%q", v.String()) || len(v.String()) != 12 {
		t.Errorf("got %s, %v", text, err)
	}
}

// Policies that a control plane resolves and a sidecar applies have the values of the documents.
func TestResolvedEqualsTheSnapshotItCameFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringMatching(`[ab.]{0,4}\*|[ab.]{1,5}`), rapid.ID[string]).Draw(t, "names")
		var policies []policy.Policy
		for i, name := range names {
			p, err := policy.ParseJSON(fmt.Appendf(nil, `[{"name":%q,"partitions":%d}]`, name, i+1))
			require.NoError(t, err)
			policies = append(policies, p...)
		}
		from, err := policy.NewSnapshot(policies, "test")
		require.NoError(t, err)
		var resolved []policy.Resolved
		for i, name := range names {
			resolved = append(resolved, policy.Resolved{Name: name, Version: 1, Source: "test", Effective: with(i + 1)})
		}
		s := policy.NewResolvedSnapshot(resolved)
		for _, topic := range rapid.SliceOfN(rapid.StringMatching(`[ab.]{1,6}`), 1, 20).Draw(t, "topics") {
			if got, want := s.Topic(topic), from.Topic(topic); *got != *want {
				t.Fatalf("%s: got %+v, want %+v", topic, got, want)
			}
			if s.Match(topic) != from.Match(topic) {
				t.Fatalf("%s: matched by %q, want %q", topic, s.Match(topic), from.Match(topic))
			}
		}
	})
}

func BenchmarkResolvedSnapshot(b *testing.B) {
	for _, n := range []int{20, 1000, 50_000} {
		policies := make([]policy.Resolved, n)
		for i := range policies {
			policies[i] = policy.Resolved{Name: fmt.Sprintf("topic.%06d", i), Version: 1, Source: "bench", Effective: with(8)}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				policy.NewResolvedSnapshot(policies)
			}
		})
	}
}

// A snapshot after any replacements equals a new one of its policies, and earlier snapshots stay as
// they are.
func TestReplacing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := policy.NewResolvedSnapshot(nil)
		held := map[string]*policy.Resolved{}
		type was struct {
			s    *policy.Snapshot
			list string
		}
		var before []was
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			var put, remove []*policy.Resolved
			for range rapid.IntRange(0, 6).Draw(t, "policies") {
				name := rapid.StringMatching(`[ab]{0,2}\*|[ab]{1,3}`).Draw(t, "name")
				if p := held[name]; p != nil && rapid.Bool().Draw(t, "removed") {
					remove = append(remove, p)
					delete(held, name)
				}
			}
			for range rapid.IntRange(0, 6).Draw(t, "policies") {
				name := rapid.StringMatching(`[ab]{0,2}\*|[ab]{1,3}`).Draw(t, "name")
				n := rapid.IntRange(1, 50).Draw(t, "n")
				p := &policy.Resolved{Name: name, Version: int64(n), Effective: with(n)}
				if old := held[name]; old != nil && rapid.Bool().Draw(t, "stale") {
					remove = append(remove, &policy.Resolved{Name: name}) // not the one that is there
				}
				put = append(put, p)
				held[name] = p
			}
			s = s.Replace(remove, put)
			var all []policy.Resolved
			for _, p := range held {
				all = append(all, *p)
			}
			want := policy.NewResolvedSnapshot(all)
			if got, want := fmt.Sprint(s.List()), fmt.Sprint(want.List()); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
			for _, topic := range []string{"a", "ab", "aba", "b", "bbbb", "c", "c.dlq"} {
				if *s.Topic(topic) != *want.Topic(topic) {
					t.Fatalf("%s: got %+v, want %+v", topic, s.Topic(topic), want.Topic(topic))
				}
			}
			before = append(before, was{s, fmt.Sprint(s.List())})
			for i, w := range before {
				if fmt.Sprint(w.s.List()) != w.list {
					t.Fatalf("snapshot %d has become another", i)
				}
			}
		}
	})
}
