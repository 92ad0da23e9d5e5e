package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Effective returns the effective values of a policy's name; nil: there is none.
func (s *Snapshot) Effective(name string) *Effective {
	prefix, glob := strings.CutSuffix(name, "*")
	if !glob {
		if s.own(name) == nil {
			return nil
		}
		return s.Topic(name)
	}
	if _, there := s.find(name); prefix == "" && !there {
		return nil // the empty prefix has the defaults
	}
	return s.globs[prefix]
}

// Change returns the snapshot after some policies were put, in place of those of the same names,
// and others removed. The result is that of [NewSnapshot] with all of them, at the cost of the
// change alone; unchanged values keep their pointers. The snapshot must be one of NewSnapshot or
// Change.
//
// The error is like that of NewSnapshot. A field of a policy that was put is policies[i].field,
// where i is its index in put; a field of another policy that the change makes invalid is
// policies["name"].field.
func (s *Snapshot) Change(put []Policy, remove []string, source string) (*Snapshot, error) {
	put = slices.Clone(put)
	order, bad := inOrder(put)
	next := &Snapshot{exact: maps.Clone(s.exact), globs: maps.Clone(s.globs)}
	place := make(map[string]int, len(order)+len(remove))
	for _, name := range remove {
		place[name] = -1
		next.forget(name)
	}
	for _, p := range order {
		place[p.Name] = p.place
	}
	next.policies = s.merge(order, place, source)
	order = next.concerned(slices.Sorted(maps.Keys(place)))
	for i, p := range order {
		if at, ok := place[p.Name]; ok {
			order[i].place = at
		}
		next.forget(p.Name)
	}
	next.lengths = lengthsOf(next.globs)
	if bad = append(bad, next.add(order)...); len(bad) > 0 {
		return nil, refusal(bad)
	}
	next.keepPointers(s, order)
	return next, nil
}

// merge returns the policies without those of the changed names, and with those that are put.
func (s *Snapshot) merge(put []placed, changed map[string]int, source string) []listed {
	added := make([]listed, len(put))
	for i, p := range put {
		added[i] = p.listed(source)
	}
	slices.SortFunc(added, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
	policies := make([]listed, 0, len(s.policies)+len(put))
	for _, p := range s.policies {
		for len(added) > 0 && added[0].Name < p.Name {
			policies, added = append(policies, added[0]), added[1:]
		}
		if _, ok := changed[p.Name]; !ok {
			policies = append(policies, p)
		}
	}
	return append(policies, added...)
}

// find returns the place of a name in the list, or the one that it would have.
func (s *Snapshot) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.policies, name, func(p listed, name string) int { return strings.Compare(p.Name, name) })
}

// forget removes the resolved values of a name. The empty prefix always has some: the defaults.
func (s *Snapshot) forget(name string) {
	prefix, glob := strings.CutSuffix(name, "*")
	switch {
	case !glob:
		delete(s.exact, name)
	case prefix == "":
		s.globs[""] = new(Defaults())
	default:
		delete(s.globs, prefix)
	}
}

// concerned returns the policies that are of a changed name or take values from one, in the order
// in which they are resolved.
func (s *Snapshot) concerned(changed []string) (order []placed) {
	seen := map[*Policy]bool{}
	for _, name := range changed {
		prefix, glob := strings.CutSuffix(name, "*")
		i, _ := s.find(prefix)
		for ; i < len(s.policies); i++ {
			p := s.policies[i]
			if glob && !strings.HasPrefix(p.Name, prefix) || !glob && p.Name != name {
				break
			}
			if !seen[p.Policy] {
				seen[p.Policy] = true
				order = append(order, placed{p.Policy, -1})
			}
		}
	}
	slices.SortStableFunc(order, func(a, b placed) int { return specific(a) - specific(b) })
	return order
}

// lengthsOf returns the lengths of the prefixes, longest first.
func lengthsOf(globs map[string]*Effective) []int {
	var has [wire.MaxTopicBytes + 1]bool
	for prefix := range globs {
		has[len(prefix)] = true
	}
	var lengths []int
	for n := len(has) - 1; n >= 0; n-- {
		if has[n] {
			lengths = append(lengths, n)
		}
	}
	return lengths
}

// keepPointers replaces values by equal ones of the older snapshot.
func (s *Snapshot) keepPointers(older *Snapshot, order []placed) {
	keep := func(now, before map[string]*Effective, key string) {
		if e := before[key]; e != nil && *e == *now[key] {
			now[key] = e
		}
	}
	keep(s.globs, older.globs, "")
	for _, p := range order {
		if prefix, glob := p.prefix(); glob {
			keep(s.globs, older.globs, prefix)
		} else {
			keep(s.exact, older.exact, p.Name)
		}
	}
}
