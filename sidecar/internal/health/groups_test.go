package health_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/health"
	report "github.com/sluice-bus/sluice/sidecar/internal/health"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

var start = time.UnixMilli(1_800_000_000_000)

func newGroups() *report.Groups {
	return &report.Groups{
		AckTimeout: func(topic string) time.Duration {
			if topic == "slow" {
				return 2 * time.Minute
			}
			return time.Second
		},
		BlockedBy: func(topic, group string) string { return "key_order" },
	}
}

// A group is stuck while its oldest event stays the same for longer than 30 s, and than an event may
// take by the policy.
func TestStuckGroups(t *testing.T) {
	g := newGroups()
	stat := telemetry.GroupStat{Group: "g", Lag: 3, Members: 1, Oldest: start}
	for _, c := range []struct {
		second int
		change func(topic string, s *telemetry.GroupStat)
		stuck  map[string]int // since which second
	}{
		{0, nil, nil},
		{29, nil, nil},
		{30, nil, map[string]int{"fast": 0}},
		{119, nil, map[string]int{"fast": 0}},
		{120, nil, map[string]int{"fast": 0, "slow": 0}},
		{125, func(_ string, s *telemetry.GroupStat) { s.Paused = true }, nil},
		{130, nil, nil}, // a pause begins anew
		{160, nil, map[string]int{"fast": 130}},
		{165, func(topic string, s *telemetry.GroupStat) { s.Oldest = start.Add(time.Second) }, nil},
		{200, func(topic string, s *telemetry.GroupStat) { s.Oldest = start.Add(time.Second) }, map[string]int{"fast": 165}},
		{205, func(topic string, s *telemetry.GroupStat) { s.Lag = 0 }, nil},
	} {
		var stats []telemetry.GroupStat
		for _, topic := range []string{"fast", "slow"} {
			s := stat
			s.Topic = topic
			if c.change != nil {
				c.change(topic, &s)
			}
			stats = append(stats, s)
		}
		got := map[string]int{}
		for key, s := range g.Look(stats, start.Add(time.Duration(c.second)*time.Second)) {
			if s.StuckSince != 0 {
				got[key.Topic] = int((s.StuckSince - start.UnixMilli()) / 1000)
				if s.BlockedBy != "key_order" {
					t.Errorf("after %d s: blocked by %q", c.second, s.BlockedBy)
				}
			}
		}
		if !maps.Equal(got, c.stuck) {
			t.Errorf("after %d s: stuck since %v, want %v", c.second, got, c.stuck)
		}
	}
}

func TestEntriesOfAGroupAreAddedUp(t *testing.T) {
	got := newGroups().Look([]telemetry.GroupStat{
		{Topic: "t", Group: "g", Lag: 1, Inflight: 2, Members: 3, Oldest: start.Add(time.Second)},
		{Topic: "t", Group: "g", Lag: 10, Inflight: 20, Oldest: start},
	}, start)
	want := health.GroupState{Lag: 11, InFlight: 22, Members: 3, Oldest: start.UnixMilli()}
	if got[health.Group{Topic: "t", Group: "g"}] != want || len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// Of more groups than can be reported those stay that are stuck, and then those with the most lag.
func TestTheWorstGroupsAreReported(t *testing.T) {
	g := newGroups()
	var stats []telemetry.GroupStat
	var dead []telemetry.DeadStat
	for i := range 1000 {
		s := telemetry.GroupStat{Topic: "t", Group: fmt.Sprint(i), Lag: int64(i), Oldest: start}
		if i < 10 {
			s.Lag = 1
		} else {
			s.Oldest = time.Time{} // not known, so not stuck
		}
		stats = append(stats, s)
		dead = append(dead, telemetry.DeadStat{Topic: "t", Group: fmt.Sprint(i), Count: int64(i)})
	}
	g.Look(stats, start)
	got := g.Look(stats, start.Add(time.Minute))
	letters := report.DeadLetters(dead)
	for i := range 1000 {
		key := health.Group{Topic: "t", Group: fmt.Sprint(i)}
		if _, there := got[key]; there != (i < 10 || i >= 1000-health.MaxGroups+10) {
			t.Errorf("group %d: %v", i, there)
		}
		if _, there := letters[key]; there != (i >= 1000-health.MaxDeadLetters) {
			t.Errorf("dead letters of group %d: %v", i, there)
		}
	}
}
