package health

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
)

func TestGroupsWithTheirLastHour(t *testing.T) {
	a, b := well("a"), well("b")
	tracker := NewTracker(&made{members: []fleet.Member{a, b}})
	if tracker.Groups() != nil {
		t.Error("there are groups before anybody looked")
	}
	b.Health.Skew = time.Hour // its clock is ahead
	for i := range 200 {
		now := start.Add(time.Duration(i) * LagEvery)
		a.Health.Groups[orders] = health.GroupState{Lag: int64(i), Members: 1, Oldest: now.Add(-time.Minute).UnixMilli()}
		b.Health.Groups[orders] = health.GroupState{Lag: 1000, Members: 2, Oldest: now.Add(time.Hour - 3*time.Minute).UnixMilli()}
		b.Health.DeadLetters[orders] = health.DeadLetters{Count: 7}
		for second := range 3 {
			tracker.look(now.Add(time.Duration(second) * time.Second))
		}
	}
	groups := tracker.Groups()
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	g := groups[0]
	got := fmt.Sprint(g.Group, g.Store, g.Lag, g.Members, g.Dead.Count, g.OldestFor.Round(time.Minute))
	if want := fmt.Sprint(orders, "s", 1199, 3, 7, 3*time.Minute); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(g.Lags) != MaxLags || g.Lags[0] != 1200-int64(MaxLags) || g.Lags[MaxLags-1] != 1199 {
		t.Errorf("%d lags: %v", len(g.Lags), g.Lags)
	}
	delete(a.Health.Groups, orders)
	delete(b.Health.Groups, orders)
	delete(b.Health.DeadLetters, orders)
	before := slices.Clone(g.Lags)
	for i := range MaxLags {
		tracker.look(start.Add(time.Duration(200+i) * LagEvery))
		if known := len(tracker.lags.known); known != 1 && i < MaxLags-1 {
			t.Fatalf("after %d moments without a report its past is forgotten", i+1)
		}
	}
	if len(tracker.lags.known) != 0 {
		t.Error("a group of which nothing is left is remembered")
	}
	if !slices.Equal(before, g.Lags) {
		t.Error("what was handed out has changed")
	}
}

func TestLagsHaveABound(t *testing.T) {
	f := &facts{now: start, groups: map[groupKey]*group{}}
	for i := range maxLagGroups + 10 {
		f.groups[groupKey{"s", health.Group{Topic: fmt.Sprint(i)}}] = &group{}
	}
	var l lags
	l.follow(f)
	if len(l.known) != maxLagGroups {
		t.Errorf("the lags of %d groups are kept", len(l.known))
	}
}
