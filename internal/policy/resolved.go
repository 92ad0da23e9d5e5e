package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Version says which content of a policy is meant: the number that a control
// plane gave it, or a hash of what a file says. The zero value is that of no
// policy.
type Version struct {
	number int64
	hash   string
}

// VersionNumber is the version of a policy that a control plane counts.
func VersionNumber(n int64) Version { return Version{number: n} }

// String is the number, or the hash.
func (v Version) String() string {
	if v.hash != "" {
		return v.hash
	}
	return strconv.FormatInt(v.number, 10)
}

// MarshalJSON writes a number, or the hash as a string.
func (v Version) MarshalJSON() ([]byte, error) {
	if v.hash != "" {
		return strconv.AppendQuote(nil, v.hash), nil
	}
	return strconv.AppendInt(nil, v.number, 10), nil
}

// Resolved is a policy that is whole: what it does not set itself has been
// filled in already, so it depends on no other one.
type Resolved struct {
	Name      string // a topic, or a prefix and '*'
	Version   int64
	Source    string // where it came from
	Effective *Effective
}

// NewResolvedSnapshot makes a snapshot of policies that are whole: the one of
// its name holds for a topic, else that of the longest matching prefix, else
// the defaults. If a name is given twice, the last one counts.
func NewResolvedSnapshot(policies []Resolved) *Snapshot {
	base := Defaults()
	s := &Snapshot{
		exact: make(map[string]*Effective, len(policies)),
		globs: map[string]*Effective{"": &base},
		list:  make([]InForce, 0, len(policies)),
	}
	for _, p := range policies {
		if prefix, glob := strings.CutSuffix(p.Name, "*"); glob {
			s.globs[prefix] = p.Effective
		} else {
			s.exact[p.Name] = p.Effective
		}
		s.list = append(s.list, InForce{Name: p.Name, Version: VersionNumber(p.Version), Source: p.Source})
	}
	s.list = sortedOnce(s.list)
	for prefix := range s.globs {
		s.lengths = append(s.lengths, len(prefix))
	}
	slices.SortFunc(s.lengths, func(a, b int) int { return b - a })
	s.lengths = slices.Compact(s.lengths)
	s.keepLetters()
	return s
}

// sortedOnce sorts by name and keeps the last of those that share one.
func sortedOnce(list []InForce) []InForce {
	byName := func(a, b InForce) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(list, byName) {
		slices.SortStableFunc(list, byName)
	}
	kept := list[:0]
	for i, p := range list {
		if i+1 == len(list) || list[i+1].Name != p.Name {
			kept = append(kept, p)
		}
	}
	return kept
}
