package fleet

import "slices"

// PlanesOf are the names of the other control planes to which sidecars of a store are connected.
func (r *Registry) PlanesOf(store string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		if slices.ContainsFunc(o.sidecars, func(s instance) bool { return s.Connected && s.StoreID == store }) {
			names = append(names, o.name)
		}
	}
	return names
}

// HasStore reports whether a sidecar of a store is connected to any control plane, or left not long
// ago.
func (r *Registry) HasStore(store string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, some := range []map[string]*member{r.members, r.left} {
		for _, m := range some {
			if m.StoreID == store {
				return true
			}
		}
	}
	for _, o := range r.others {
		for i := range o.sidecars {
			if o.sidecars[i].StoreID == store {
				return true
			}
		}
	}
	return false
}
