package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
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
		`{"name":"orders.*","version":3,"source":"test"},{"name":"orders.created","version":4,"source":"test"}]`; err != nil || string(list) != want {
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

// What a control plane resolves and a sidecar takes is what the policies say.
func TestResolvedEqualsTheSnapshotItCameFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringMatching(`[ab.]{0,4}\*|[ab.]{1,5}`), rapid.ID[string]).Draw(t, "names")
		var policies []policy.Policy
		for i, name := range names {
			p, err := policy.ParseJSON(fmt.Appendf(nil, `[{"name":%q,"partitions":%d}]`, name, i+1))
			if err != nil {
				t.Fatal(err)
			}
			policies = append(policies, p...)
		}
		from, err := policy.NewSnapshot(policies, "test")
		if err != nil {
			t.Fatal(err)
		}
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
