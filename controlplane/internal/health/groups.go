package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/health"
)

const (
	// LagEvery is the interval of the lags that are kept of a group, and MaxLags how many of them there are: an hour.
	LagEvery = 30 * time.Second
	MaxLags  = int(time.Hour / LagEvery)
	// maxLagGroups bounds the groups whose lags are kept, 1 KiB each; of more those that were there first.
	maxLagGroups = 10_000
)

// Group is a consumer group over all sidecars of its store, as they report it. Group.Group is "" where it has
// the dead letters of no group.
type Group struct {
	Store string
	health.Group
	health.GroupState
	// OldestFor is for how long the oldest event that is not settled has been there.
	OldestFor time.Duration
	Dead      health.DeadLetters
	// Lags are those of the last hour, every LagEvery, the latest last.
	Lags []int64
}

// lags has the lags of groups in the last hour. Use it from one goroutine, but for what it has handed out.
type lags struct {
	last  time.Time
	known map[groupKey][]int64 // is replaced, and never changed
}

// follow notes the lags of groups. One that nobody reports has none: sidecars leave out those that have neither
// members nor events that wait.
func (l *lags) follow(f *facts) {
	if f.now.Sub(l.last) < LagEvery {
		return
	}
	l.last = f.now
	known := make(map[groupKey][]int64, len(f.groups))
	for k, was := range l.known {
		var lag int64
		if g := f.groups[k]; g != nil {
			lag = g.Lag
		}
		next := append(slices.Clip(was), lag) // those who read was go on
		next = next[max(len(next)-MaxLags, 0):]
		if f.groups[k] != nil || slices.ContainsFunc(next, func(n int64) bool { return n != 0 }) {
			known[k] = next
		}
	}
	for k, g := range f.groups {
		if known[k] == nil && len(known) < maxLagGroups {
			known[k] = []int64{g.Lag}
		}
	}
	l.known = known
}

// Groups are as of the last look, by topic, group and store.
func (t *Tracker) Groups() []Group {
	t.mu.Lock()
	f, known := t.latest, t.lagsThen
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	out := make([]Group, 0, len(f.groups))
	for k, g := range f.groups {
		out = append(out, Group{Store: k.store, Group: k.Group, GroupState: g.GroupState, OldestFor: g.oldestFor, Dead: g.dead, Lags: known[k]})
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Or(a.Group.Compare(b.Group), cmp.Compare(a.Store, b.Store)) })
	return out
}
