package fleet

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

// Entry is a sidecar in the store's roster, from its connection until it leaves without events of
// its own, or is forgotten.
type Entry struct {
	Node
	Seen time.Time // when it connected, or was gone
}

// Key is the same in all lives of a sidecar on one store and data folder: elsewhere it has other events.
func (e Entry) Key() string { return e.ID + "\n" + e.StoreID + "\n" + e.FolderID }

// Unknown is the entry of a sidecar whose store is not known yet.
func (e Entry) Unknown() Entry { return Entry{Node: Node{ID: e.ID, FolderID: e.FolderID}} }

// covers reports whether a sidecar is that of an entry. An entry whose store is not known yet covers
// the sidecar on every store.
func (e Entry) covers(s *instance) bool {
	return e.ID == s.NodeID && e.FolderID == s.FolderID && (e.StoreID == s.StoreID || e.StoreID == "")
}

// startedAgain reports whether the sidecar of an entry is connected and has not reached its store yet: it is
// back, and only replays have to name the entry until it is known to be on that store.
func (e Entry) startedAgain(list []instance) bool {
	return slices.ContainsFunc(list, func(s instance) bool {
		return s.Connected && s.StoreID == "" && s.NodeID == e.ID && s.FolderID == e.FolderID
	})
}

// roster has the sidecars that must not be forgotten.
type roster struct {
	stored map[string]Entry    // as the store had it last
	keys   map[string][]string // of stored, by node id
	due    map[string]Entry    // to be stored
	change pause.Wake          // there is something due
}

func newRoster() roster {
	return roster{stored: map[string]Entry{}, keys: map[string][]string{}, due: map[string]Entry{}, change: pause.NewWake()}
}

// enter marks a sidecar as due, unless it is stored.
func (r *roster) enter(n Node, seen time.Time, again bool) {
	e := Entry{n, seen.UTC().Truncate(time.Millisecond)}
	if n.Address == "" {
		return // no sidecar could ask it for its events
	}
	if was, known := r.stored[e.Key()]; known && was.Node == n && !again {
		delete(r.due, e.Key())
		return
	}
	r.due[e.Key()] = e
	r.change.Set()
}

func (r *roster) store(e Entry) {
	if _, known := r.stored[e.Key()]; !known {
		r.keys[e.ID] = append(r.keys[e.ID], e.Key())
	}
	r.stored[e.Key()] = e
}

func (r *roster) forget(e Entry) {
	delete(r.stored, e.Key())
	delete(r.due, e.Key())
	r.keys[e.ID] = slices.DeleteFunc(r.keys[e.ID], func(key string) bool { return key == e.Key() })
	if len(r.keys[e.ID]) == 0 {
		delete(r.keys, e.ID)
	}
}

// Due returns the entries to be stored, and a channel that signals further ones.
func (r *Registry) Due() ([]Entry, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.roster.due)), r.roster.change
}

// Stored says that a due entry is in the store.
func (r *Registry) Stored(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roster.due[e.Key()] == e {
		delete(r.roster.due, e.Key())
		r.roster.store(e)
	}
}

// Remember replaces the known entries of the store. An entry that is neither there nor due was
// forgotten through some control plane; if its sidecar is connected it is due again. A due entry of
// a sidecar that is gone is dropped if another life of it is stored: it has connected elsewhere.
func (r *Registry) Remember(list []Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.roster.stored)
	clear(r.roster.keys)
	for _, e := range list {
		r.roster.store(e)
	}
	for key, e := range r.roster.due {
		now, there := r.roster.stored[key]
		if there && now.Instance != e.Instance && !r.here(e.Node) {
			delete(r.roster.due, key)
		}
	}
	for _, m := range r.members {
		r.roster.enter(m.Node, r.now(), false)
	}
	for id, m := range r.left {
		key := Entry{Node: m.Node}.Key()
		_, stored := r.roster.stored[key]
		if _, due := r.roster.due[key]; !m.drained && m.Address != "" && !stored && !due {
			delete(r.left, id)
		}
	}
}

// here reports whether this life of a sidecar is connected here.
func (r *Registry) here(n Node) bool {
	m := r.members[n.ID]
	return m != nil && m.Instance == n.Instance
}

// Superseded are stored entries of connected sidecars from before their store was known.
func (r *Registry) Superseded() (out []Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if e, there := r.roster.stored[Entry{Node: m.Node}.Unknown().Key()]; there && m.StoreID != "" {
			out = append(out, e)
		}
	}
	return out
}

// Missing returns the sidecars that are gone and may have left events behind.
func (r *Registry) Missing() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing(r.instances(false))
}

// missing returns them, given the connected ones; ascending by node id and store.
func (r *Registry) missing(known []instance) []Entry {
	byNode := map[string][]*instance{}
	for i := range known {
		if s := &known[i]; s.Connected || s.Drained {
			byNode[s.NodeID] = append(byNode[s.NodeID], s)
		}
	}
	var out []Entry
	entries := maps.Clone(r.roster.stored)
	maps.Copy(entries, r.roster.due)
	for _, e := range entries {
		there := func(s *instance) bool { return e.covers(s) && (s.Connected || s.Instance == e.Instance) }
		if !slices.ContainsFunc(byNode[e.ID], there) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Key(), b.Key()) })
	return out
}

// Forget says that an entry is no longer in the store.
func (r *Registry) Forget(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roster.forget(e)
	if m := r.left[e.ID]; m != nil && m.StoreID == e.StoreID && m.FolderID == e.FolderID {
		delete(r.left, e.ID)
	}
}
