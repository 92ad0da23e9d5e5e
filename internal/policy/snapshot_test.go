package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/require"
)

func TestResolution(t *testing.T) {
	s := snapshotOf(t, `
- {name: '*', partitions: 1, publish: {rate: 1}, connection: {rate: 50}}
- {name: 'orders.*', partitions: 2, publish: {burst: 20}, connection: {rate: 60}}
- {name: 'orders.eu.*', publish: {rate: 3}}
- {name: orders.eu.new, publish: {burst: 40}}
- {name: 'ord*', paused: true}
`)
	for _, c := range []struct {
		topic      string
		partitions int
		rate       float64
		burst      int
		paused     bool
	}{
		{"payments", 1, 1, 1000, false},
		{"orders", 1, 1, 1000, true},
		{"orders.", 2, 1, 20, true},
		{"orders.created", 2, 1, 20, true},
		{"orders.eu.created", 2, 3, 20, true},
		{"orders.eu.new", 2, 3, 40, true},
		{"orders.eu.newer", 2, 3, 20, true},
	} {
		e := s.Topic(c.topic)
		if e.Partitions != c.partitions || e.Publish.Rate != c.rate || e.Publish.Burst != c.burst || e.Paused != c.paused {
			t.Errorf("%s: got %+v, want %+v", c.topic, e, c)
		}
		if s.Topic(strings.Clone(c.topic)) != e {
			t.Errorf("%s: another pointer the second time", c.topic)
		}
	}
	if got, want := s.Connection(), (policy.Rate{Rate: 50, Burst: 200}); got != want {
		t.Errorf("connection: %+v, want %+v", got, want)
	}
}

func TestNoPolicies(t *testing.T) {
	s, err := policy.NewSnapshot(nil, "none")
	require.NoError(t, err)
	if *s.Topic("any") != policy.Defaults() || s.Connection() != policy.Defaults().Connection || len(s.List()) != 0 {
		t.Errorf("got %+v, %+v, %+v", s.Topic("any"), s.Connection(), s.List())
	}
}

func TestVersionIsOfTheContent(t *testing.T) {
	version := func(document string) string { return snapshotOf(t, document).List()[0].Version.String() }
	a := version("[{name: a, publish: {rate: 5, burst: 6}}]")
	if b := version(`[{"publish": {"burst": 6.0, "rate": 5}, name: "a"}]`); a != b {
		t.Errorf("another spelling has version %s, want %s", b, a)
	}
	for _, other := range []string{"[{name: b, publish: {rate: 5, burst: 6}}]", "[{name: a, publish: {rate: 5}}]",
		"[{name: a, publish: {rate: 6, burst: 6}}]"} {
		if version(other) == a {
			t.Errorf("%s has the same version", other)
		}
	}
}

func TestListIsByName(t *testing.T) {
	list := snapshotOf(t, "[{name: b}, {name: '*'}, {name: a}]").List()
	if got := fmt.Sprint(list[0].Name, list[1].Name, list[2].Name, list[0].Source); got != "*abtest" {
		t.Errorf("got %s", got)
	}
}

// naive resolves one field as the contract words it.
func naive(topic string, value map[string]int) int {
	if v, ok := value[topic]; ok && v > 0 {
		return v
	}
	best, length := 8, -1
	for name, v := range value {
		if prefix, glob := strings.CutSuffix(name, "*"); glob && v > 0 && strings.HasPrefix(topic, prefix) && len(prefix) > length {
			best, length = v, len(prefix)
		}
	}
	return best
}

func TestResolutionEqualsTheWording(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// partitions and max_inflight by name; 0: not set.
		partitions := rapid.MapOf(rapid.StringMatching(`[ab.]{0,4}\*|[ab.]{1,5}`), rapid.IntRange(0, 1000)).Draw(t, "policies")
		attempts := map[string]int{}
		var document strings.Builder
		document.WriteString("policies: [")
		for name, p := range partitions {
			fmt.Fprintf(&document, "{name: %q", name)
			if p > 0 {
				fmt.Fprintf(&document, ", partitions: %d", p)
			}
			if p%3 != 0 {
				attempts[name] = p
				fmt.Fprintf(&document, ", delivery: {max_attempts: %d}", p)
			}
			document.WriteString("}, ")
		}
		document.WriteString("]")
		policies, err := policy.ParseYAML([]byte(document.String()))
		require.NoError(t, err)
		s, err := policy.NewSnapshot(policies, "test")
		require.NoError(t, err)
		for _, topic := range rapid.SliceOfN(rapid.StringMatching(`[ab.]{1,6}`), 1, 20).Draw(t, "topics") {
			e := s.Topic(topic)
			if got, want := e.Partitions, naive(topic, partitions); got != want {
				t.Fatalf("%s has %d partitions, want %d", topic, got, want)
			}
			if want := naive(topic, attempts); want != 8 && e.Delivery.MaxAttempts != want {
				t.Fatalf("%s has %d attempts, want %d", topic, e.Delivery.MaxAttempts, want)
			}
		}
	})
}

func TestWatch(t *testing.T) {
	first, _ := policy.NewSnapshot(nil, "first")
	second, _ := policy.NewSnapshot(nil, "second")
	c := policy.NewCurrent(first)
	s, changed := c.Watch()
	select {
	case <-changed:
		t.Fatal("changed before any change")
	default:
	}
	c.Swap(second)
	<-changed
	if s != first || c.Load() != second {
		t.Error("the wrong snapshot is in force")
	}
}

func BenchmarkTopic(b *testing.B) {
	policies, err := policy.ParseYAML([]byte("[{name: '*'}, {name: 'a*'}, {name: 'orders.*'}, {name: 'payments.eu.*'}, " +
		"{name: orders.created}]"))
	require.NoError(b, err)
	s, err := policy.NewSnapshot(policies, "bench")
	require.NoError(b, err)
	for _, topic := range []string{"orders.created", "orders.updated", "shipments.eu.created"} {
		b.Run(topic, func(b *testing.B) {
			for b.Loop() {
				s.Topic(topic)
			}
		})
	}
}
