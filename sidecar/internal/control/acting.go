package control

import (
	"cmp"
	"slices"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/policy"
)

// acting is the policies that are in force once all globs are known, ascending
// by name. A few that change are found in it; to sort all of them costs many
// times what a snapshot does.
type acting struct {
	list  []policy.Resolved
	stale bool // it is to be made again
}

// manyChanges is from how many changes on it is quicker to sort again.
const manyChanges = 64

// change puts the entry of a name in, or takes it out where it is nil or says
// that there is no policy.
func (a *acting) change(name string, e *entry) {
	if a.stale {
		return
	}
	i, there := slices.BinarySearchFunc(a.list, name, func(p policy.Resolved, name string) int { return cmp.Compare(p.Name, name) })
	switch acts := e != nil && e.effective != nil; {
	case acts && there:
		a.list[i] = e.resolved(name)
	case acts:
		a.list = slices.Insert(a.list, i, e.resolved(name))
	case there:
		a.list = slices.Delete(a.list, i, i+1)
	}
}

// snapshot makes one of what acts, given what is held.
func (a *acting) snapshot(held map[string]map[string]*entry) *policy.Snapshot {
	if a.stale {
		a.list, a.stale = a.list[:0], false
		for _, typeURL := range []string{policypb.GlobPolicyType, policypb.TopicPolicyType} {
			for name, e := range held[typeURL] {
				if e.effective != nil {
					a.list = append(a.list, e.resolved(name))
				}
			}
		}
		slices.SortFunc(a.list, func(a, b policy.Resolved) int { return cmp.Compare(a.Name, b.Name) })
	}
	return policy.NewResolvedSnapshot(a.list)
}

func (e *entry) resolved(name string) policy.Resolved {
	p := policy.Resolved{Name: name, Version: e.number, Source: sourceCached, Effective: e.effective}
	if e.live {
		p.Source = sourceLive
	}
	return p
}
