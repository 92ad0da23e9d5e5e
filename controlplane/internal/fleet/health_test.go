package fleet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/test/require"
)

func TestHealthOfSidecars(t *testing.T) {
	r, c := newRegistry("cp1")
	other, _ := newRegistry("cp2")
	state := func(published int64) *health.State {
		return &health.State{
			Process: health.Process{StoreState: "ok", Counts: health.Counts{Published: published}},
			Groups:  map[health.Group]health.GroupState{{Topic: "t", Group: "g"}: {Lag: 1}}, Log: []string{"line"},
		}
	}
	r.SetHealth("a", "1", state(5), c.at) // it is not connected yet
	_, err := r.Connect(fleet.Node{ID: "a", Instance: "1", StoreID: "s", Address: "a:1"}, fleet.Prefix{})
	require.NoError(t, err)
	if m := r.Members(); len(m) != 1 || m[0].Health != nil {
		t.Errorf("got %+v", m)
	}
	r.SetHealth("a", "another life", state(5), c.at)
	r.SetHealth("a", "1", state(100), c.at)
	c.pass(5 * time.Second)
	r.SetHealth("a", "1", state(150), c.at.Add(3*time.Second))
	r.Usage("a", "orders", 10, 5, c.at)
	c.pass(3 * time.Second)
	check := func(r *fleet.Registry, lines int) {
		t.Helper()
		m, topics, found := r.Find("a")
		if !found || !slices.Equal(topics, []string{"orders"}) || m.Health == nil {
			t.Fatalf("got %+v, %v, %v", m, topics, found)
		}
		h := m.Health
		if h.Skew != 3*time.Second || h.Rates.Published != 10 || h.Groups[health.Group{Topic: "t", Group: "g"}].Lag != 1 || len(h.Log) != lines {
			t.Errorf("got %+v", h)
		}
		if d := r.Demand()["orders"]; d.Allowed == 0 || d.Denied == 0 || r.TopicCount() != 1 {
			t.Errorf("demand %+v of %d topics", d, r.TopicCount())
		}
	}
	check(r, 1)
	if err := other.Merge("cp2", [][]byte{r.Export()}); err != nil {
		t.Fatal(err)
	}
	check(other, 0)                       // the log stays with the control plane that the sidecar is connected to
	r.SetHealth("a", "1", state(0), c.at) // a topic was deleted, and what was counted for it
	if m := r.Members()[0]; m.Health.Rates.Published != 0 {
		t.Errorf("%v a second", m.Health.Rates.Published)
	}
	if _, _, found := r.Find("b"); found {
		t.Error("found a sidecar that there is not")
	}
}
