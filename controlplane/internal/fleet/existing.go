package fleet

import (
	"maps"
	"slices"
	"unique"
)

// Bounds of the topics that are known to exist, besides those in use.
const (
	// MaxExisting bounds the names, and MaxInStores the pairs of a name and a store, that one control
	// plane knows of its sidecars' stores. Further ones are not shown, and counted by Uncounted.
	MaxExisting = 50_000
	MaxInStores = 1_000_000
)

// existing are the topics that exist in the stores of the sidecars.
type existing struct {
	stores map[string]*storeTopics
	names  map[string]int // in how many stores each is
	pairs  int
}

type storeTopics struct {
	names    map[string]struct{}
	reported bool // a sidecar reports the changes
}

func newExisting() existing {
	return existing{stores: map[string]*storeTopics{}, names: map[string]int{}}
}

// SetTopics replaces the topics that exist in a store. Its changes follow, until EndTopics.
func (r *Registry) SetTopics(store string, names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetStores()
	s := r.existing.stores[store]
	if s == nil {
		s = &storeTopics{names: map[string]struct{}{}}
		r.existing.stores[store] = s
	}
	s.reported = true
	gone := maps.Clone(s.names)
	for _, name := range names {
		delete(gone, name)
	}
	for name := range gone {
		r.deleted(s, name)
	}
	for _, name := range names {
		r.exists(s, name)
	}
	r.forgetUsage(store)
}

// forgetUsage removes the topics in use that exist in no store, where all who use them are of a store that has just told all of its
// topics: they were deleted before it did.
func (r *Registry) forgetUsage(store string) {
	for name, t := range r.usage.topics {
		if r.existing.names[name] > 0 {
			continue
		}
		others := false
		for node := range t.by {
			m := r.members[node]
			others = others || m == nil || m.StoreID != store
		}
		if !others {
			r.usage.remove(name)
		}
	}
}

// ChangeTopics adds topics to those that exist in a store, and removes others.
func (r *Registry) ChangeTopics(store string, added, removed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.existing.stores[store]
	for _, name := range removed {
		r.deleted(s, name)
	}
	for _, name := range added {
		r.exists(s, name)
	}
}

// EndTopics says that the topics of a store are not reported any more. They stay as long as a
// sidecar of the store is known.
func (r *Registry) EndTopics(store string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.existing.stores[store].reported = false
}

func (r *Registry) exists(s *storeTopics, name string) {
	e := &r.existing
	if _, there := s.names[name]; there {
		return
	}
	if e.pairs >= MaxInStores || e.names[name] == 0 && len(e.names) >= MaxExisting {
		r.usage.uncounted++
		return
	}
	name = unique.Make(name).Value() // stores share the text
	s.names[name] = struct{}{}
	e.names[name]++
	e.pairs++
}

// deleted removes a topic from a store. One that is in no store any more is not shown as in use
// either.
func (r *Registry) deleted(s *storeTopics, name string) {
	if _, there := s.names[name]; !there {
		return
	}
	r.existing.remove(s, name)
	if r.usage.topics[name] != nil && r.existing.names[name] == 0 {
		r.usage.remove(name)
	}
}

func (e *existing) remove(s *storeTopics, name string) {
	delete(s.names, name)
	e.pairs--
	if e.names[name]--; e.names[name] == 0 {
		delete(e.names, name)
	}
}

// forgetStores removes the stores that no sidecar reports and of which no sidecar is known.
func (r *Registry) forgetStores() {
	known := map[string]bool{}
	for _, m := range r.members {
		known[m.StoreID] = true
	}
	for _, m := range r.left {
		if r.now().Sub(m.gone) <= KeepDisconnected {
			known[m.StoreID] = true
		}
	}
	for _, entries := range []map[string]Entry{r.roster.stored, r.roster.due} {
		for _, e := range entries {
			known[e.StoreID] = true
		}
	}
	for id, s := range r.existing.stores {
		if s.reported || known[id] {
			continue
		}
		for name := range s.names {
			r.existing.remove(s, name)
		}
		delete(r.existing.stores, id)
	}
}

// existingNames are those of this control plane's sidecars, in no order.
func (r *Registry) existingNames() []string {
	r.forgetStores()
	return slices.Collect(maps.Keys(r.existing.names))
}
