package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bounds of a registry.
const (
	// MaxConnected bounds the sidecars connected to one control plane.
	MaxConnected = 20_000
	// MaxDisconnected bounds the sidecars that left whose versions are kept; beyond it the versions
	// of those that left first are removed. Missing sidecars stay missing.
	MaxDisconnected = 1_000
	// MaxVersions bounds the versions shown of all sidecars together; beyond it versions that all
	// sidecars share are left out.
	MaxVersions = 100_000
	// KeepDisconnected is how long the versions of a sidecar that left are kept.
	KeepDisconnected = time.Hour
)

// Config is what a registry needs.
type Config struct {
	// ControlPlane is the name of this control plane, which no other one has.
	ControlPlane string
	// AwaitEnd is for tests; 0: [AwaitEnd].
	AwaitEnd time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Registry is what one control plane knows of its sidecars and of those of other control planes. It
// is safe for concurrent use.
type Registry struct {
	name  string
	now   func() time.Time
	start time.Time // the seconds of usage are counted from here
	await time.Duration

	mu       sync.Mutex
	members  map[string]*member // connected, by node id
	left     map[string]*member // by node id: the last ones of it, where none is connected
	usage    usage
	hours    hours // by topic and node id
	reasons  hours // of refusals, by topic and code
	existing existing
	others   []other
	roster   roster
	refusals map[string]refusals // by node id
	refused  int64
}

// identity tells sidecars apart, even two with the same node id that are connected to two control
// planes.
type identity struct{ node, instance string }

// member is one sidecar of this control plane.
type member struct {
	Node
	session  *Session
	gone     time.Time // zero: it is connected
	drained  bool
	parts    map[string]*Part // nil: it has none
	rejected *Rejection
	unmet    map[string]string
	health   *Health // nil: it has reported none
}

// Node is what a sidecar reports of itself.
type Node struct {
	ID       string
	Instance string // of its process, unlike that of any other, also of one with this ID; as policypb.PublicID has it
	Address  string // of its replay API, host:port or unix:/path; "": it has none
	StoreID  string
	FolderID string // of its data folder, as policypb.PublicID has it
	Version  string // of the program
	Gone     bool   // it has left, or cannot be reached
}

// NewRegistry returns a registry without sidecars.
func NewRegistry(c Config) *Registry {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.AwaitEnd == 0 {
		c.AwaitEnd = AwaitEnd
	}
	return &Registry{
		name: c.ControlPlane, now: c.Now, start: c.Now(), await: c.AwaitEnd,
		members: map[string]*member{}, left: map[string]*member{},
		usage: usage{topics: map[string]*topicUse{}}, hours: newHours(MaxHours), reasons: newHours(MaxRefusals),
		existing: newExisting(), roster: newRoster(), refusals: map[string]refusals{},
	}
}

// Session is one connection of a sidecar. If a sidecar connects again before its dead connection is
// detected, only the new session counts: calls of the old one change nothing.
type Session struct {
	registry *Registry
	node     string
}

// Connect adds a sidecar, within the bound of a prefix. The error is a *TakenError, or says that there are too many.
func (r *Registry) Connect(n Node, within Prefix) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if taken := r.taken(n); taken != nil {
		taken.Again = r.refuse(n)
		return nil, taken
	}
	if err := r.fits(n.ID, within); err != nil {
		return nil, err
	}
	if r.members[n.ID] == nil && len(r.members) >= MaxConnected {
		return nil, fmt.Errorf("this control plane has %d sidecars, the most that it takes: start another one on the same --store", MaxConnected)
	}
	delete(r.left, n.ID)
	s := &Session{registry: r, node: n.ID}
	r.members[n.ID] = &member{Node: n, session: s}
	r.roster.enter(n, r.now(), false)
	return s, nil
}

// Part is a set of policies that a sidecar has together. It is never changed.
type Part struct {
	ID       string // a hash of the content
	Versions map[string]int64
}

// Holds records that the sidecar runs the policies of these parts, by the names of the parts, and
// no longer has the gone parts. A sidecar with parts has all policies.
func (s *Session) Holds(parts map[string]*Part, gone []string) {
	s.update(func(m *member) {
		if m.parts == nil {
			m.parts = map[string]*Part{}
		}
		for _, name := range gone {
			delete(m.parts, name)
		}
		maps.Copy(m.parts, parts)
	})
}

// Rejected says what the sidecar refuses; nil: nothing any more.
func (s *Session) Rejected(what *Rejection) {
	s.update(func(m *member) { m.rejected = what })
}

// Unmet says which write concerns the sidecar's store does not meet, by topic.
func (s *Session) Unmet(concerns map[string]string) {
	s.update(func(m *member) { m.unmet = concerns })
}

// Located says which store the sidecar is on, once it knows. A store that is known does not change.
func (s *Session) Located(storeID string) {
	s.update(func(m *member) {
		if m.StoreID == "" && storeID != "" {
			delete(s.registry.roster.due, Entry{Node: m.Node}.Key())
			m.StoreID = storeID
			s.registry.roster.enter(m.Node, s.registry.now(), false)
		}
	})
}

// Close ends the session. It may be called again.
func (s *Session) Close() {
	s.update(func(m *member) {
		delete(s.registry.members, s.node)
		m.gone, m.unmet = s.registry.now(), nil
		s.registry.remember(m)
		s.registry.roster.enter(m.Node, m.gone, true)
	})
}

// Drained says that a sidecar has left, or is about to, without events of its own: it is no peer
// from now on.
func (r *Registry) Drained(n Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roster.forget(Entry{Node: n})
	if m := r.members[n.ID]; m != nil && m.Instance == n.Instance {
		delete(r.members, n.ID)
		m.gone, m.drained, m.unmet = r.now(), true, nil
		r.remember(m)
	} else if m := r.left[n.ID]; m != nil && m.Instance == n.Instance {
		m.drained = true
	}
}

// update changes the session's sidecar, unless it has another session by now.
func (s *Session) update(change func(*member)) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	if m := s.registry.members[s.node]; m != nil && m.session == s {
		change(m)
	}
}

// remember keeps a sidecar that left. It removes the sidecars that left long ago and, if there are
// too many, the one that left first.
func (r *Registry) remember(m *member) {
	r.left[m.ID] = m
	var first *member
	for id, old := range r.left {
		if m.gone.Sub(old.gone) > KeepDisconnected {
			delete(r.left, id)
		} else if first == nil || old.gone.Before(first.gone) {
			first = old
		}
	}
	if len(r.left) > MaxDisconnected {
		delete(r.left, first.ID)
	}
}

// instance is a sidecar with its identity among those of the same node id.
type instance struct {
	Sidecar
	Instance string
	FolderID string
	Held     []int         // its parts, as indexes in the parts of the document
	parts    []*Part       // nil: it has none
	Packed   *packedHealth // health, in a document
	health   *Health       // nil: it has reported none
}

// Sidecars returns those of all control planes, ascending by node id. A connected one was last seen
// now: its connection is probed. One that left is shown unless another of the same node id is
// connected or left later.
func (r *Registry) Sidecars() []Sidecar {
	list := r.all(true)
	alike := alike(list)
	out := make([]Sidecar, len(list))
	for i := range list {
		out[i] = list[i].Sidecar
		out[i].Versions = map[string]int64{}
		for _, part := range list[i].parts {
			if !alike[part.ID] {
				maps.Copy(out[i].Versions, part.Versions)
			}
		}
	}
	return out
}

// all are the instances that are shown, with their versions if requested.
func (r *Registry) all(versions bool) []instance {
	r.mu.Lock()
	list := r.instances(versions)
	missing := slices.DeleteFunc(r.missing(list), func(e Entry) bool { return e.startedAgain(list) })
	for i := range list {
		list[i].RefusedSessions = r.refusalsOf(list[i].NodeID)
	}
	r.mu.Unlock()
	return r.withMissing(list, missing)
}

// alike returns the parts that all sidecars with parts share, if there are more than MaxVersions to
// show.
func alike(list []instance) map[string]bool {
	count, holders, versions := map[string]int{}, 0, 0
	for i := range list {
		if list[i].parts != nil {
			holders++
		}
		for _, part := range list[i].parts {
			count[part.ID]++
			versions += len(part.Versions)
		}
	}
	if versions <= MaxVersions {
		return nil
	}
	all := map[string]bool{}
	for id, n := range count {
		all[id] = n == holders
	}
	return all
}

// withMissing adds the missing sidecars that are not in a list, and marks the others as missing.
func (r *Registry) withMissing(list []instance, missing []Entry) []instance {
	for _, e := range missing {
		i := slices.IndexFunc(list, func(s instance) bool { return !s.Connected && !s.Drained && e.covers(&s) })
		if i < 0 {
			i = len(list)
			list = append(list, instance{Instance: e.Instance, FolderID: e.FolderID, Sidecar: Sidecar{
				NodeID: e.ID, Address: e.Address, LastSeen: e.Seen, Version: e.Version, StoreID: e.StoreID}})
		}
		list[i].Missing = true
	}
	slices.SortStableFunc(list, compare)
	return list
}

// Known returns how many sidecars are connected to any control plane.
func (r *Registry) Known() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.members)
	elsewhere := map[identity]bool{}
	for _, o := range r.others {
		for _, s := range o.sidecars {
			id := identity{s.NodeID, s.Instance}
			if m := r.members[s.NodeID]; s.Connected && (m == nil || m.Instance != s.Instance) && !elsewhere[id] {
				elsewhere[id] = true
				n++
			}
		}
	}
	return n
}

// Peers returns the sidecars of all control planes that have a replay API, ascending by id and
// instance. One that has left stays unless it was drained or forgotten: replays must name it, since
// its events are missing.
func (r *Registry) Peers() []Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Node
	list := r.instances(false)
	for _, s := range r.withMissing(list, r.missing(list)) {
		if s.Address != "" && !s.Drained {
			out = append(out, Node{
				ID: s.NodeID, Instance: s.Instance, Address: s.Address, StoreID: s.StoreID, FolderID: s.FolderID, Version: s.Version,
				Gone: !s.Connected,
			})
		}
	}
	return out
}

// instances merges the sidecars of all control planes, with their versions if requested.
func (r *Registry) instances(versions bool) []instance {
	list := r.own(versions)
	for _, o := range r.others {
		list = append(list, o.sidecars...)
	}
	slices.SortFunc(list, compare)
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].NodeID == s.NodeID && (!s.Connected || out[n-1].Instance == s.Instance) {
			continue
		}
		out = append(out, s)
	}
	return out
}

// compare orders instances by node id. Among instances of one node id the one that is shown comes
// first: connected ones first, then the one seen last.
func compare(a, b instance) int {
	later := b.LastSeen.Compare(a.LastSeen)
	switch {
	case a.NodeID != b.NodeID:
		return cmp.Compare(a.NodeID, b.NodeID)
	case a.Connected && b.Connected:
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), later)
	case a.Connected:
		return -1
	case b.Connected:
		return 1
	default:
		return later
	}
}

// own lists the sidecars of this control plane.
func (r *Registry) own(versions bool) []instance {
	now := r.now()
	list := make([]instance, 0, len(r.members)+len(r.left))
	for _, m := range r.members {
		list = append(list, r.show(m, now, versions))
	}
	for _, m := range r.left {
		if now.Sub(m.gone) <= KeepDisconnected {
			list = append(list, r.show(m, m.gone, versions))
		}
	}
	return list
}

func (r *Registry) show(m *member, seen time.Time, versions bool) instance {
	s := instance{Instance: m.Instance, FolderID: m.FolderID, Sidecar: Sidecar{
		NodeID: m.ID, Address: m.Address, LastSeen: seen.UTC().Truncate(time.Millisecond),
		Rejected: m.rejected, UnmetConcerns: m.unmet, Connected: m.gone.IsZero(), Drained: m.drained, Version: m.Version,
		StoreID: m.StoreID, ControlPlane: r.name,
	}, health: m.health}
	if versions {
		s.parts = m.list()
	}
	return s
}

// list returns the parts in no order; nil: it has none.
func (m *member) list() []*Part {
	if m.parts == nil {
		return nil
	}
	return slices.AppendSeq([]*Part{}, maps.Values(m.parts))
}

// Using returns the sidecars of all control planes that have policies, each with its version of one
// policy alone, ascending by node id.
func (r *Registry) Using(policy string) []Sidecar {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Sidecar
	for _, s := range r.instances(false) {
		if s.ControlPlane == r.name {
			m := r.members[s.NodeID]
			if m == nil || !s.Connected {
				m = r.left[s.NodeID]
			}
			if m != nil {
				s.parts = m.list()
			}
		}
		if s.parts == nil {
			continue
		}
		s.Versions = map[string]int64{}
		for _, part := range s.parts {
			if version := part.Versions[policy]; version > s.Versions[policy] {
				s.Versions[policy] = version
			}
		}
		out = append(out, s.Sidecar)
	}
	return out
}
