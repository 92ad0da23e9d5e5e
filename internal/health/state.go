// Package health is what a sidecar tells its control plane of itself: a State, and the Report of
// what has changed in it, of which the control plane makes the same State again.
package health

import (
	"cmp"
	"maps"
	"slices"
)

// Bounds of a State. What is beyond them is left out; the worst stays.
const (
	// MaxGroups bounds the groups, and MaxDeadLetters the groups with dead letters.
	MaxGroups      = 256
	MaxDeadLetters = 256
	// MaxSources bounds the outboxes and captures.
	MaxSources = 64
	// MaxLogLines bounds the lines of the log.
	MaxLogLines = 100
	// MaxTextBytes bounds a name, an error, a reason or a line of the log.
	MaxTextBytes = 512
)

// State is the health of one sidecar. Times are milliseconds since the epoch by the sidecar's clock; 0 is
// none.
type State struct {
	Process     Process
	Groups      map[Group]GroupState
	DeadLetters map[Group]DeadLetters
	Sources     map[SourceName]Source
	// Log has the last lines of level warn and above, the latest last.
	Log []string
}

// Process is what a sidecar has once.
type Process struct {
	Started     int64  `json:"started"`
	StoreKind   string `json:"store_kind"`  // embedded or mongodb
	StoreState  string `json:"store_state"` // ok, away, draining, full, disk_full, failed or starting
	StoreSince  int64  `json:"store_since"` // when the store went away, came back or was opened
	StoreError  string `json:"store_error,omitempty"`
	SpoolEvents int64  `json:"spool_events"`
	SpoolBytes  int64  `json:"spool_bytes"`
	SpoolOldest int64  `json:"spool_oldest"` // when the oldest event there was accepted
	MemoryUsed  int64  `json:"memory_used"`
	MemoryBound int64  `json:"memory_bound"`
	DiskFree    int64  `json:"disk_free"`
	DiskLow     int64  `json:"disk_low"` // with less than that free nothing is stored
	Connections int    `json:"connections"`
	Counts      Counts `json:"counts"`
}

// Counts are of events, since the process began. They may fall when a topic is deleted.
type Counts struct {
	Published int64 `json:"published"`
	Delivered int64 `json:"delivered"`
	Refused   int64 `json:"refused"`
	Dead      int64 `json:"dead"` // became dead letters
}

// Group names a consumer group.
type Group struct {
	Topic string `json:"topic"`
	Group string `json:"group"`
}

// Compare orders groups by topic and name.
func (g Group) Compare(h Group) int {
	return cmp.Or(cmp.Compare(g.Topic, h.Topic), cmp.Compare(g.Group, h.Group))
}

// GroupState is a sidecar's part of a group. Sums over the sidecars of a store are the group's.
type GroupState struct {
	Lag      int64 `json:"lag"`
	InFlight int64 `json:"inflight"`
	Members  int   `json:"members"` // that are connected here
	Oldest   int64 `json:"oldest"`  // when the oldest event that is not settled was accepted
	Paused   bool  `json:"paused,omitempty"`
	// StuckSince is since when Oldest has been the same, if that is too long; BlockedBy is why
	// members here get nothing.
	StuckSince int64  `json:"stuck_since,omitempty"`
	BlockedBy  string `json:"blocked_by,omitempty"`
}

// DeadLetters are those of a group; a group "" has those that no group had. One sidecar of a store counts them.
type DeadLetters struct {
	Count  int64 `json:"count"`
	Oldest int64 `json:"oldest"` // when the first of them died
	Newest int64 `json:"newest"`
}

// SourceName names an outbox or a capture.
type SourceName struct {
	Kind string `json:"kind"` // outbox or capture
	Name string `json:"name"` // database.collection
}

// Compare orders sources by kind and name.
func (s SourceName) Compare(t SourceName) int {
	return cmp.Or(cmp.Compare(s.Kind, t.Kind), cmp.Compare(s.Name, t.Name))
}

// Source is the state of an outbox or a capture.
type Source struct {
	State   string `json:"state"`             // ok, or the fault
	Failing bool   `json:"failing,omitempty"` // State is a fault
	Stopped bool   `json:"stopped,omitempty"` // it needs an operator
	// Failed counts the documents or changes that were given up since the start, and FailedAt is when
	// the last one was.
	Failed   int64 `json:"failed,omitempty"`
	FailedAt int64 `json:"failed_at,omitempty"`
}

// Report is what has changed in a State. The first one of a stream has all of it.
type Report struct {
	At          int64                       `json:"at"` // when it was sent
	Process     *Process                    `json:"process,omitempty"`
	Groups      changes[Group, GroupState]  `json:"groups,omitzero"`
	DeadLetters changes[Group, DeadLetters] `json:"dead_letters,omitzero"`
	Sources     changes[SourceName, Source] `json:"sources,omitzero"`
	Log         []string                    `json:"log,omitempty"` // new lines
	// Refused is not of the State: the control plane adds up what all streams have reported.
	Refused []Refused `json:"refused,omitempty"`
}

// key is of a map's entries, in an order.
type key[K any] interface {
	comparable
	Compare(K) int
}

// changes are the changes of a map, in the order of the keys.
type changes[K key[K], V comparable] struct {
	Set  []row[K, V] `json:"set,omitempty"`
	Gone []K         `json:"gone,omitempty"`
}

type row[K, V any] struct {
	Key   K `json:"key"`
	Value V `json:"value"`
}

// Diff returns the report that makes next of s. Its log has the lines of next that s does not have,
// which are the last newLines ones.
func (s *State) Diff(next *State, newLines int) Report {
	r := Report{
		Groups: diff(s.Groups, next.Groups), DeadLetters: diff(s.DeadLetters, next.DeadLetters), Sources: diff(s.Sources, next.Sources),
		Log: next.Log[len(next.Log)-min(newLines, len(next.Log)):],
	}
	if s.Process != next.Process {
		r.Process = &next.Process
	}
	return r
}

func diff[K key[K], V comparable](was, is map[K]V) (c changes[K, V]) {
	for key, value := range is {
		if old, known := was[key]; !known || old != value {
			c.Set = append(c.Set, row[K, V]{key, value})
		}
	}
	for key := range was {
		if _, there := is[key]; !there {
			c.Gone = append(c.Gone, key)
		}
	}
	slices.SortFunc(c.Set, func(a, b row[K, V]) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(c.Gone, K.Compare)
	return c
}

// Apply returns the state after a report. It changes neither of them, and leaves out what is beyond
// the bounds.
func (s *State) Apply(r *Report) *State {
	next := *s
	if r.Process != nil {
		next.Process = *r.Process
	}
	next.Groups = apply(s.Groups, r.Groups, MaxGroups)
	next.DeadLetters = apply(s.DeadLetters, r.DeadLetters, MaxDeadLetters)
	next.Sources = apply(s.Sources, r.Sources, MaxSources)
	if len(r.Log) > 0 {
		next.Log = slices.Concat(s.Log, r.Log)
		next.Log = next.Log[max(len(next.Log)-MaxLogLines, 0):]
	}
	return &next
}

func apply[K key[K], V comparable](was map[K]V, c changes[K, V], most int) map[K]V {
	if len(c.Set)+len(c.Gone) == 0 {
		return was
	}
	is := maps.Clone(was)
	if is == nil {
		is = map[K]V{}
	}
	for _, key := range c.Gone {
		delete(is, key)
	}
	for _, r := range c.Set {
		if _, known := is[r.Key]; known || len(is) < most {
			is[r.Key] = r.Value
		}
	}
	return is
}
