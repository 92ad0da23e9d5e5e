package policy_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func one(t rapid.TB, document string) policy.Policy {
	t.Helper()
	p, err := policy.ParsePolicy([]byte(document))
	require.NoError(t, err)
	return p
}

// A change has the result that a new snapshot of all policies has.
func TestChangeEqualsANewSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab]{0,3}\*|[ab]{1,3}`)
		settings := rapid.SampledFrom([]string{`"partitions":3`, `"partitions":4`, `"paused":true`, `"publish":{"rate":0,"burst":0}`,
			`"publish":{"rate":5}`, `"publish":{"burst":7}`, `"delivery":{"backoff":{"min":"6m"}}`, `"delivery":{"backoff":{"max":"7m"}}`})
		all := map[string]policy.Policy{}
		now, err := policy.NewSnapshot(nil, "test")
		require.NoError(t, err)
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			next := maps.Clone(all)
			removed := rapid.SliceOfNDistinct(name, 0, 2, rapid.ID).Draw(t, "removed")
			for _, name := range removed {
				delete(next, name)
			}
			var put []policy.Policy
			for _, name := range rapid.SliceOfNDistinct(name, 0, 4, rapid.ID).Draw(t, "put") {
				put = append(put, one(t, fmt.Sprintf(`{"name":%q,%s}`, name, settings.Draw(t, "settings"))))
				next[name] = put[len(put)-1]
			}
			whole, wantErr := policy.NewSnapshot(slices.Collect(maps.Values(next)), "test")
			changed, err := now.Change(put, removed, "test")
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("the change: %v, all of them: %v", err, wantErr)
			}
			if err != nil {
				if got, want := len(wire.AsError(err).Fields), len(wire.AsError(wantErr).Fields); got != want {
					t.Fatalf("%d bad fields, want %d", got, want)
				}
				continue
			}
			sameSnapshots(t, changed, whole)
			now, all = changed, next
		}
	})
}

func sameSnapshots(t *rapid.T, got, want *policy.Snapshot) {
	if !reflect.DeepEqual(got.List(), want.List()) {
		t.Fatalf("got %v, want %v", got.List(), want.List())
	}
	for _, topic := range strings.Fields("a b aa ab ba bb aaa aab aba abb baa bab bba bbb aaaa babb c") {
		if *got.Topic(topic) != *want.Topic(topic) || got.Match(topic) != want.Match(topic) {
			t.Fatalf("%s: got %s %+v, want %s %+v", topic, got.Match(topic), got.Topic(topic), want.Match(topic), want.Topic(topic))
		}
	}
	if got.Connection() != want.Connection() {
		t.Fatal("another limit of connections")
	}
}

func TestChangeKeepsPointers(t *testing.T) {
	s := snapshotOf(t, "[{name: a}, {name: 'b*'}, {name: ba}]")
	next, err := s.Change([]policy.Policy{one(t, `{"name":"b*","delivery":{"max_attempts":25}}`),
		one(t, `{"name":"bb","paused":true}`)}, []string{"a"}, "test")
	require.NoError(t, err)
	for _, topic := range []string{"ba", "bc", "c"} {
		if next.Topic(topic) != s.Topic(topic) {
			t.Errorf("%s has another pointer for the same values", topic)
		}
	}
	all, err := next.Change([]policy.Policy{one(t, `{"name":"*","partitions":8}`)}, nil, "test")
	if err != nil || all.Topic("c") != s.Topic("c") || all.Match("c") != "*" {
		t.Errorf("a policy for all that says what the defaults say has another pointer than they: %v", err)
	}
	if all, err = all.Change(nil, []string{"*"}, "test"); err != nil || all.Topic("c") != s.Topic("c") || all.Match("c") != "" {
		t.Errorf("the defaults have another pointer than a policy that said the same: %v", err)
	}
	if next.Effective("a") != nil || next.Effective("b*") != next.Topic("bc") || next.Effective("bb") != next.Topic("bb") ||
		next.Effective("*") != nil {
		t.Error("Effective is not that of the policy")
	}
	if s.Match("a") != "a" || next.Match("a") != "" || !next.Topic("bb").Paused || s.Topic("bb").Paused {
		t.Error("the change changed the older snapshot, or not the newer one")
	}
}

func TestRefusedChange(t *testing.T) {
	s := snapshotOf(t, "[{name: 'a*', delivery: {backoff: {max: 7m}}}, {name: ab, delivery: {backoff: {min: 6m}}}]")
	slow := one(t, `{"name":"c","delivery":{"backoff":{"min":"6m"}}}`)
	for _, c := range []struct {
		put    []policy.Policy
		remove []string
		fields []string
	}{
		{nil, []string{"a*"}, []string{`policies["ab"].delivery.backoff.min`}},
		{[]policy.Policy{one(t, `{"name":"a*"}`), slow, slow}, nil,
			[]string{"policies[2].name", "policies[1].delivery.backoff.min", `policies["ab"].delivery.backoff.min`}},
	} {
		_, err := s.Change(c.put, c.remove, "test")
		var fields []string
		for _, f := range wire.AsError(err).Fields {
			fields = append(fields, f.Field)
		}
		slices.Sort(fields)
		slices.Sort(c.fields)
		if !slices.Equal(fields, c.fields) {
			t.Errorf("got %q, want %q", fields, c.fields)
		}
	}
}

func tenThousand(tb testing.TB) []policy.Policy {
	tb.Helper()
	var document strings.Builder
	document.WriteString("[")
	for i := range 10_000 {
		fmt.Fprintf(&document, `{"name":"team%d.topic%d","publish":{"rate":%d,"burst":100},"delivery":{"max_inflight":7}},`, i%100, i, i+1)
	}
	document.WriteString(`{"name":"*","connection":{"rate":5}}]`)
	policies, err := policy.ParseJSON([]byte(document.String()))
	require.NoError(tb, err)
	return policies
}

func BenchmarkTenThousandPolicies(b *testing.B) {
	policies := tenThousand(b)
	s, err := policy.NewSnapshot(policies, "bench")
	require.NoError(b, err)
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if _, err := policy.NewSnapshot(policies, "bench"); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, i := range []int{5000, 10_000} {
		b.Run("change "+policies[i].Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Change(policies[i:i+1], nil, "bench"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
