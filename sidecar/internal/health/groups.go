package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// stuckAfter is the least time after which a group is stuck whose oldest event stays the same.
const stuckAfter = 30 * time.Second

// Groups follows the groups of a sidecar. Use it from one goroutine.
type Groups struct {
	// AckTimeout is that of a topic's policy: an event may take so long. BlockedBy is why the members
	// of a group here get nothing; "" if they do.
	AckTimeout func(topic string) time.Duration
	BlockedBy  func(topic, group string) string

	oldest map[health.Group]since
}

// since is since when the oldest event of a group has been the same.
type since struct{ oldest, at int64 }

// Look returns the groups that have members or events that wait; of more than can be reported the
// worst.
func (g *Groups) Look(stats []telemetry.GroupStat, now time.Time) map[health.Group]health.GroupState {
	sums := map[health.Group]health.GroupState{}
	for _, s := range stats {
		key := health.Group{Topic: s.Topic, Group: s.Group}
		sum := sums[key]
		sum.Lag += s.Lag
		sum.InFlight += s.Inflight
		sum.Members += s.Members
		sum.Paused = s.Paused
		if at := ms(s.Oldest); at != 0 && (sum.Oldest == 0 || at < sum.Oldest) {
			sum.Oldest = at
		}
		sums[key] = sum
	}
	seen := map[health.Group]since{}
	for key, sum := range sums {
		if sum.Lag == 0 || sum.Paused || sum.Oldest == 0 {
			continue
		}
		last, known := g.oldest[key]
		if !known || last.oldest != sum.Oldest {
			last = since{sum.Oldest, now.UnixMilli()}
		}
		seen[key] = last
		if wait := max(stuckAfter, g.AckTimeout(key.Topic)); now.UnixMilli()-last.at >= wait.Milliseconds() {
			sum.StuckSince, sum.BlockedBy = last.at, g.BlockedBy(key.Topic, key.Group)
			sums[key] = sum
		}
	}
	g.oldest = seen
	return worst(sums)
}

// worst leaves out the least interesting groups beyond the bound: first those that are not stuck, of
// these those with the least lag.
func worst(all map[health.Group]health.GroupState) map[health.Group]health.GroupState {
	if len(all) <= health.MaxGroups {
		return all
	}
	keys := make([]health.Group, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b health.Group) int {
		x, y := all[a], all[b]
		if x.StuckSince != 0 || y.StuckSince != 0 {
			return cmp.Or(cmp.Compare(min(y.StuckSince, 1), min(x.StuckSince, 1)), cmp.Compare(x.StuckSince, y.StuckSince), a.Compare(b))
		}
		return cmp.Or(cmp.Compare(y.Lag, x.Lag), a.Compare(b))
	})
	for _, key := range keys[health.MaxGroups:] {
		delete(all, key)
	}
	return all
}

// DeadLetters are those of groups that have some; of more than can be reported those with the most.
func DeadLetters(stats []telemetry.DeadStat) map[health.Group]health.DeadLetters {
	stats = slices.DeleteFunc(slices.Clone(stats), func(s telemetry.DeadStat) bool { return s.Count == 0 })
	slices.SortFunc(stats, func(a, b telemetry.DeadStat) int { return cmp.Compare(b.Count, a.Count) })
	all := map[health.Group]health.DeadLetters{}
	for _, s := range stats[:min(len(stats), health.MaxDeadLetters)] {
		all[health.Group{Topic: s.Topic, Group: s.Group}] = health.DeadLetters{Count: s.Count, Oldest: ms(s.Oldest), Newest: ms(s.Newest)}
	}
	return all
}

func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
