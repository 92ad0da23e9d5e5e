package catalog

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
)

// Entry is one policy in one version.
type Entry struct {
	Policy    policy.Policy
	Version   int64
	UpdatedAt time.Time
	UpdatedBy string

	bytes int // of the policy as JSON
}

// MarshalJSON writes the policy's document with the members of its version.
func (e Entry) MarshalJSON() ([]byte, error) {
	meta, err := json.Marshal(struct {
		Version   int64  `json:"version"`
		UpdatedAt Time   `json:"updated_at"`
		UpdatedBy string `json:"updated_by"`
	}{e.Version, Time{e.UpdatedAt}, e.UpdatedBy})
	if err != nil {
		return nil, err
	}
	out := e.Policy.AppendJSON(nil)
	out[len(out)-1] = ',' // both are objects that are not empty
	return append(out, meta[1:]...), nil
}

// Time is written as UTC with milliseconds.
type Time struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// Resolved is one policy in force with all its fields, inherited ones included.
type Resolved struct {
	Name    string
	Version int64
	// Effective keeps its pointer in the next state if its values stay.
	Effective *policy.Effective
}

// State is the policies as of one revision. It is immutable and shared.
type State struct {
	Revision int64
	Series   int64 // that the revision is of
	bytes    int   // of all policies as JSON, and of inherited groups and weights
	// Entries are ascending by name.
	Entries []Entry
	// Resolved has one element for each of Entries, in their order.
	Resolved []Resolved
	// Snapshot has the effective values of any topic.
	Snapshot *policy.Snapshot
}

// source is the source of policies in snapshots.
const source = "control plane"

func emptyState() *State {
	s, err := policy.NewSnapshot(nil, source)
	if err != nil {
		panic(err) // no policy cannot be a bad one
	}
	return &State{Snapshot: s, Entries: []Entry{}}
}

// Find returns the policy of a name, which is shared and read only; nil: there is none.
func (s *State) Find(name string) *Entry {
	i, found := slices.BinarySearchFunc(s.Entries, name, func(e Entry, name string) int { return strings.Compare(e.Policy.Name, name) })
	if !found {
		return nil
	}
	return &s.Entries[i]
}

// with returns the state after policies were put and others removed; a name occurs only once in
// both together. The error is that of policy.Snapshot.Change.
func (s *State) with(revision int64, put []Entry, remove []string) (*State, error) {
	policies := make([]policy.Policy, len(put))
	for i := range put {
		policies[i] = put[i].Policy
	}
	snapshot, err := s.Snapshot.Change(policies, remove, source)
	if err != nil {
		return nil, err
	}
	next := &State{Revision: revision, Series: s.Series, Snapshot: snapshot, Entries: s.merge(put, remove)}
	next.Resolved = make([]Resolved, len(next.Entries))
	for i := range next.Entries {
		e := &next.Entries[i]
		effective := snapshot.Effective(e.Policy.Name)
		next.bytes += e.bytes + e.Policy.Merged(effective)
		next.Resolved[i] = Resolved{Name: e.Policy.Name, Version: e.Version, Effective: effective}
	}
	return next, nil
}

// merge returns the entries without the removed ones and with the put ones, which it sorts.
func (s *State) merge(put []Entry, remove []string) []Entry {
	slices.SortFunc(put, func(a, b Entry) int { return cmp.Compare(a.Policy.Name, b.Policy.Name) })
	gone := make(map[string]bool, len(remove))
	for _, name := range remove {
		gone[name] = true
	}
	merged := make([]Entry, 0, len(s.Entries)+len(put))
	for i := range s.Entries {
		name := s.Entries[i].Policy.Name
		for len(put) > 0 && put[0].Policy.Name < name {
			merged, put = append(merged, put[0]), put[1:]
		}
		switch {
		case len(put) > 0 && put[0].Policy.Name == name:
			merged, put = append(merged, put[0]), put[1:]
		case !gone[name]:
			merged = append(merged, s.Entries[i])
		}
	}
	return append(merged, put...)
}
