package health

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

var start = time.UnixMilli(1_800_000_000_000).UTC()

// made is a fleet for a Tracker.
type made struct {
	members []fleet.Member
	demand  map[string]fleet.Point
}

func (m *made) Members() []fleet.Member        { return slices.Clone(m.members) }
func (m *made) Demand() map[string]fleet.Point { return m.demand }
func (m *made) TopicCount() int                { return len(m.demand) }

// well is a sidecar that nothing is wrong with.
func well(node string) fleet.Member {
	return fleet.Member{
		Sidecar: fleet.Sidecar{NodeID: node, StoreID: "s", Version: "v1", Connected: true},
		Health: &fleet.Health{State: &health.State{
			Process: health.Process{StoreKind: "mongodb", StoreState: "ok", StoreSince: 1, MemoryBound: 100, DiskFree: 1000, DiskLow: 10},
			Groups:  map[health.Group]health.GroupState{}, DeadLetters: map[health.Group]health.DeadLetters{},
			Sources: map[health.SourceName]health.Source{},
		}},
	}
}

var orders = health.Group{Topic: "orders", Group: "billing"}

// troubles make each kind of incident at one of two sidecars, a and b, with the sentence that it has.
var troubles = []struct {
	kind, text string
	subject    Subject
	make       func(a *fleet.Member, f *made, at time.Time)
}{
	{"store_away", "The store does not take events: away at 1 of its 2 sidecars. The last error: no primary", Subject{Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) {
			a.Health.Process.StoreState, a.Health.Process.StoreError = "away", "no primary"
		}},
	{"spooling", "12 events wait in the sidecars' spools for the store.", Subject{Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) { a.Health.Process.SpoolEvents = 12 }},
	{"sidecar_missing", "Sidecar a is gone, and may have events that no other has.", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) { a.Connected, a.Missing = false, true }},
	{"policy_rejected", "Sidecar a refuses policy orders.*, version 3: no such disk", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) {
			a.Rejected = &fleet.Rejection{Policy: "orders.*", Version: 3, Reason: "no such disk"}
		}},
	{"group_stuck", "Group billing of orders does not settle its oldest event: 1 member, 2 in flight; the members get nothing: key_order.",
		Subject{Store: "s", Topic: "orders", Group: "billing"},
		func(a *fleet.Member, _ *made, at time.Time) {
			a.Health.Groups[orders] = health.GroupState{Lag: 5, Members: 1, InFlight: 2, StuckSince: at.UnixMilli(), BlockedBy: "key_order"}
		}},
	{"lag_growing", "", Subject{Store: "s", Topic: "orders", Group: "billing"},
		func(a *fleet.Member, _ *made, at time.Time) {
			a.Health.Groups[orders] = health.GroupState{Lag: at.Sub(start).Milliseconds(), Members: 1}
		}},
	{"dead_letters", "Group billing has given up 7 events of orders.", Subject{Store: "s", Topic: "orders", Group: "billing"},
		func(a *fleet.Member, _ *made, _ time.Time) {
			a.Health.DeadLetters[orders] = health.DeadLetters{Count: 7}
		}},
	{"refused", "40 of 140 events a second to orders are over its limit, and refused.", Subject{Topic: "orders"},
		func(_ *fleet.Member, f *made, _ time.Time) {
			f.demand = map[string]fleet.Point{"orders": {Allowed: 100, Denied: 40}}
		}},
	{"capture_stopped", "The capture of shop.carts has stopped: the place is lost", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) {
			a.Health.Sources[health.SourceName{Kind: "capture", Name: "shop.carts"}] = health.Source{State: "the place is lost", Stopped: true}
		}},
	{"outbox_failing", "The outbox shop.outbox cannot be drained: away", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) {
			a.Health.Sources[health.SourceName{Kind: "outbox", Name: "shop.outbox"}] = health.Source{State: "away", Failing: true}
		}},
	{"outbox_failing", "Documents of the outbox shop.outbox are given up: 3 since the sidecar was started.", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, at time.Time) {
			a.Health.Sources[health.SourceName{Kind: "outbox", Name: "shop.outbox"}] = health.Source{State: "ok", Failed: 3,
				FailedAt: at.Add(-givenUpFor / 2).UnixMilli()}
		}},
	{"disk_low", "The disk of sidecar a has 15 B left; below 10 B nothing is stored.", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) { a.Health.Process.DiskFree = 15 }},
	{"memory_full", "The clients of sidecar a use 95 B of the 100 B that it has for them.", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) { a.Health.Process.MemoryUsed = 95 }},
	{"clock_skew", "The clock of sidecar a is 5s behind the control plane's.", Subject{NodeID: "a", Store: "s"},
		func(a *fleet.Member, _ *made, _ time.Time) { a.Health.Skew = -5 * time.Second }},
	{"version_skew", "Sidecars of 2 versions are connected: 1 of v1, 1 of v2.", Subject{},
		func(a *fleet.Member, _ *made, _ time.Time) { a.Version = "v2" }},
}

// Each kind begins within 10 s of what it is about, but for those that have to last, and is gone
// within 30 s of its end; nothing else appears.
func TestEachKindBeginsAndEnds(t *testing.T) {
	covered := map[string]bool{}
	for _, trouble := range troubles {
		covered[trouble.kind] = true
		f := &made{}
		tracker := NewTracker(f)
		var began, ended time.Duration
		const lasts, until = 2 * time.Minute, 4 * time.Minute
		for passed := time.Duration(0); passed < until; passed += lookEvery {
			a := well("a")
			f.demand = nil
			if passed < lasts {
				trouble.make(&a, f, start.Add(passed))
			}
			f.members = []fleet.Member{a, well("b")}
			tracker.look(start.Add(passed))
			open := tracker.Overview().Incidents
			switch {
			case len(open) > 0 && began == 0:
				began = passed + 1
			case len(open) == 0 && began > 0 && ended == 0:
				ended = passed
			case len(open) > 0 && ended > 0:
				t.Errorf("%s: begins again %v after its end", trouble.kind, passed-ended)
			}
			for _, i := range open {
				if i.Kind != trouble.kind || i.Subject != trouble.subject || trouble.text != "" && i.Text != trouble.text || i.Remedy == "" {
					t.Fatalf("%s: got %+v", trouble.kind, i)
				}
			}
		}
		most := 10 * time.Second
		if trouble.kind == "lag_growing" {
			most += trendSamples * trendEvery
		}
		if began == 0 || began > most || ended <= lasts || ended > lasts+30*time.Second+trendEvery*trendSamples {
			t.Errorf("%s: began after %v, and ended %v after its end", trouble.kind, began, ended-lasts)
		}
	}
	for _, k := range kinds {
		if !covered[k.name] {
			t.Errorf("%s is not tested", k.name)
		}
	}
}

// Whatever is found, an incident begins only with evidence of the kind's after, ends once there has
// been none for its quiet, and then the next one needs new evidence: so none flaps.
func TestIncidentsFollowTheEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(kinds).Draw(t, "kind")
		var episodes map[key]episode
		now, wasOpen := start, false
		var held, lastSeen time.Time // since when it is found all the time; when it was found last
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second)
			what := rapid.SampledFrom([]string{"nothing", "between", "found"}).Draw(t, "what")
			found := map[string][]finding{}
			if what != "nothing" {
				found[k.name] = []finding{{between: what == "between"}}
			}
			quietFor := now.Sub(lastSeen)
			if what != "found" && !wasOpen || quietFor >= k.quiet && wasOpen {
				held = time.Time{}
			}
			if what == "found" && held.IsZero() {
				held = now
			}
			episodes = advance(episodes, found, now)
			open := len(incidents(episodes)) == 1
			if open && !wasOpen {
				if what != "found" || now.Sub(held) < k.after {
					t.Fatalf("%s opened with %s, found since %v", k.name, what, now.Sub(held))
				}
			}
			if wasOpen && !open && quietFor < k.quiet {
				t.Fatalf("%s closed %v after it was found", k.name, quietFor)
			}
			if open && what == "nothing" && quietFor >= k.quiet {
				t.Fatalf("%s is still open %v after it was found", k.name, quietFor)
			}
			if what != "nothing" && (open || what == "found") {
				lastSeen = now
			}
			wasOpen = open
		}
		if after := advance(episodes, nil, now.Add(time.Minute)); len(after) != 0 {
			t.Fatalf("a minute later there are still %v", after)
		}
	})
}

func TestThresholdsHaveTwoSides(t *testing.T) {
	for _, c := range []struct {
		kind string
		make func(a *fleet.Member, f *made)
	}{
		{"disk_low", func(a *fleet.Member, _ *made) { a.Health.Process.DiskFree = 21 }},
		{"memory_full", func(a *fleet.Member, _ *made) { a.Health.Process.MemoryUsed = 85 }},
		{"clock_skew", func(a *fleet.Member, _ *made) { a.Health.Skew = 1500 * time.Millisecond }},
		{"refused", func(_ *fleet.Member, f *made) {
			f.demand = map[string]fleet.Point{"orders": {Allowed: 10, Denied: 0.9}}
		}},
	} {
		i := slices.IndexFunc(troubles, func(t struct {
			kind, text string
			subject    Subject
			make       func(a *fleet.Member, f *made, at time.Time)
		}) bool {
			return t.kind == c.kind
		})
		f := &made{}
		tracker := NewTracker(f)
		for second := range 180 {
			a := well("a")
			f.demand = nil
			switch {
			case second < 60 || second >= 120:
				c.make(&a, f)
			default:
				troubles[i].make(&a, f, start)
			}
			f.members = []fleet.Member{a}
			tracker.look(start.Add(time.Duration(second) * time.Second))
			if n := len(tracker.Overview().Incidents); n != 0 && second < 60 || n != 1 && second > 70 {
				t.Fatalf("%s: %d incidents after %d s", c.kind, n, second)
			}
		}
	}
}

func TestIncidentsAreBounded(t *testing.T) {
	f := &made{}
	for i := range 3000 {
		m := well(fmt.Sprint("n", i))
		m.Connected, m.Missing = false, true
		f.members = append(f.members, m)
	}
	tracker := NewTracker(f)
	tracker.look(start)
	tracker.look(start.Add(10 * time.Second))
	o := tracker.Overview()
	if len(o.Incidents) != maxShown || o.More != maxEpisodes-maxShown || o.Sidecars.Missing != 3000 {
		t.Errorf("%d shown, %d more, %v", len(o.Incidents), o.More, o.Sidecars)
	}
	if n := tracker.Counts()["sidecar_missing"]; n != maxEpisodes {
		t.Errorf("%d are counted", n)
	}
}

func TestOverviewStoresAndHistory(t *testing.T) {
	f := &made{demand: map[string]fleet.Point{"a": {}, "b": {}}}
	for i := range 3 {
		m := well(fmt.Sprint("n", i))
		m.StoreID = fmt.Sprint("s", i%2)
		m.Health.Rates = fleet.Rates{Published: 10, Delivered: 20, Refused: 1, Dead: 0.5}
		m.Health.Process.SpoolEvents = int64(i)
		f.members = append(f.members, m)
	}
	f.members[1].Health.Process.StoreState = "draining"
	tracker := NewTracker(f)
	for i := range 2*maxPoints + 10 {
		tracker.look(start.Add(time.Duration(i) * pointEvery))
	}
	o := tracker.Overview()
	rates := []float64{o.PublishedPerSecond, o.DeliveredPerSecond, o.RefusedPerSecond, o.DeadPerSecond}
	if o.Stores != 2 || o.Topics != 2 || !slices.Equal(rates, []float64{30, 60, 3, 1.5}) {
		t.Errorf("%+v", o)
	}
	got := fmt.Sprint(tracker.Stores())
	if want := "[{s1 mongodb draining"; !strings.HasPrefix(got, want) || !strings.Contains(got, "[n0 n2] 2 ") {
		t.Errorf("got %s", got)
	}
	if h := tracker.History(); len(h) != maxPoints || h[0].Published != 30 {
		t.Errorf("%d points, the first %+v", len(h), h[0])
	}
}

// TestAlertsFile says when deploy/prometheus/alerts.yaml is not what the table makes, when a kind wakes nobody, and when no page says
// what to do about it.
func TestAlertsFile(t *testing.T) {
	var made bytes.Buffer
	require.NoError(t, WriteAlerts(&made))
	file, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	require.NoError(t, err)
	if !bytes.Equal(file, made.Bytes()) {
		t.Error("deploy/prometheus/alerts.yaml is stale: make alerts")
	}
	page, err := os.ReadFile("../../API.md")
	require.NoError(t, err)
	guide, err := os.ReadFile("../../../docs/operating.md")
	require.NoError(t, err)
	for _, k := range kinds {
		if !strings.Contains(made.String(), fmt.Sprintf("remedy: %q", k.remedy)) {
			t.Errorf("no alert is about %s", k.name)
		}
		if row := fmt.Sprintf("\n| `%s` | %s | %s | %s |\n", k.name, k.severity, k.begins, k.ends); !strings.Contains(string(page), row) {
			t.Errorf("API.md lacks %s", row)
		}
		if !strings.Contains(string(guide), "\n### "+k.name+"\n") {
			t.Errorf("docs/operating.md says nothing of %s", k.name)
		}
	}
}

func TestTopicGroups(t *testing.T) {
	a, b, other := well("a"), well("b"), well("c")
	other.StoreID = "t"
	a.Health.Groups[orders] = health.GroupState{Lag: 3}
	b.Health.Groups[orders] = health.GroupState{Lag: 4}
	other.Health.Groups[orders] = health.GroupState{Lag: 5}
	a.Health.Groups[health.Group{Topic: "orders", Group: "mail"}] = health.GroupState{}
	a.Health.DeadLetters[orders] = health.DeadLetters{Count: 2}
	tracker := NewTracker(&made{members: []fleet.Member{a, b, other}})
	a.Health.DeadLetters[health.Group{Topic: "orders"}] = health.DeadLetters{Count: 1} // of no group
	tracker.look(start)
	if got, want := tracker.TopicGroups()["orders"], (wire.TopicGroups{Groups: 3, Lag: 7, DeadLetters: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
