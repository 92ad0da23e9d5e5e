package policy

import (
	"hash/maphash"
	"maps"
	"strconv"
	"strings"
)

// Version identifies the content of a policy: the number that a control plane gave it, or a hash of
// a file's policy. The zero value is that of no policy.
type Version struct {
	number int64
	hash   string
}

// VersionNumber is the version of a policy of a control plane.
func VersionNumber(n int64) Version { return Version{number: n} }

// String is the number, or the hash.
func (v Version) String() string {
	if v.hash != "" {
		return v.hash
	}
	return strconv.FormatInt(v.number, 10)
}

// MarshalJSON encodes the number, or the hash as a string.
func (v Version) MarshalJSON() ([]byte, error) {
	if v.hash != "" {
		return strconv.AppendQuote(nil, v.hash), nil
	}
	return strconv.AppendInt(nil, v.number, 10), nil
}

// Resolved is a policy with all fields: inherited ones are filled in, so it depends on no other
// policy.
type Resolved struct {
	Name      string // a topic, or a prefix and '*'
	Version   int64
	Source    string // where it came from
	Effective *Effective
}

// topics has the policies of topics in a snapshot of resolved ones, in parts, of which a change
// copies few: a sidecar has all policies, and applies every change.
type topics [256]map[string]*Resolved

var seed = maphash.MakeSeed()

func partOf(topic string) uint8 { return uint8(maphash.String(seed, topic)) }

func (t *topics) find(topic string) *Resolved { return t[partOf(topic)][topic] }

// NewResolvedSnapshot makes a snapshot of resolved policies: a topic has the policy of its name,
// else that of the longest matching prefix, else the defaults. If a name is given twice, the last
// one counts.
func NewResolvedSnapshot(policies []Resolved) *Snapshot {
	put := make([]*Resolved, len(policies))
	for i := range policies {
		put[i] = &policies[i]
	}
	return (&Snapshot{topics: &topics{}}).Replace(nil, put)
}

// Replace returns the snapshot after some policies were removed and others put, in place of those
// of the same names. A policy to be removed stays if the snapshot has another one of its name. The
// snapshot must be one of NewResolvedSnapshot or Replace, and put policies must not change any
// more.
func (s *Snapshot) Replace(remove, put []*Resolved) *Snapshot {
	next := &Snapshot{topics: new(*s.topics), prefixes: s.prefixes, globs: s.globs, lengths: s.lengths}
	var own [len(next.topics)]bool
	ownGlobs := s.globs == nil
	part := func(name string) map[string]*Resolved {
		if strings.HasSuffix(name, "*") {
			if !ownGlobs {
				ownGlobs, next.prefixes = true, maps.Clone(s.prefixes)
			}
			if next.prefixes == nil {
				next.prefixes = map[string]*Resolved{}
			}
			return next.prefixes
		}
		i := partOf(name)
		if !own[i] {
			own[i] = true
			if next.topics[i] = maps.Clone(s.topics[i]); next.topics[i] == nil {
				next.topics[i] = make(map[string]*Resolved, len(put)/len(next.topics))
			}
		}
		return next.topics[i]
	}
	for _, p := range remove {
		if of := part(p.Name); of[p.Name] == p {
			delete(of, p.Name)
		}
	}
	for _, p := range put {
		part(p.Name)[p.Name] = p
	}
	if ownGlobs {
		next.globs = map[string]*Effective{"": new(Defaults())}
		for name, p := range next.prefixes {
			next.globs[strings.TrimSuffix(name, "*")] = p.Effective
		}
		next.lengths = lengthsOf(next.globs)
	}
	return next
}

// resolved names the policies of a resolved snapshot, in no order.
func (s *Snapshot) resolved() (list []InForce) {
	if s.topics == nil {
		return nil
	}
	for _, part := range append(s.topics[:], s.prefixes) {
		for _, p := range part {
			list = append(list, InForce{Name: p.Name, Version: VersionNumber(p.Version), Source: p.Source})
		}
	}
	return list
}
