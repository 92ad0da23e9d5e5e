package health

import (
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
)

// facts are what is known at a moment.
type facts struct {
	now     time.Time
	members []fleet.Member
	demand  map[string]fleet.Point // by topic
	groups  map[groupKey]*group
	stores  map[string]*Store
}

// groupKey names a group of a store.
type groupKey struct {
	store string
	health.Group
}

// group is a group, over all sidecars of its store.
type group struct {
	health.GroupState
	dead      health.DeadLetters
	oldestFor time.Duration
	growing   growth // of its lag
}

// Store is a store of events, as its sidecars see it.
type Store struct {
	Store    string    `json:"store"`
	Kind     string    `json:"kind"`  // embedded or mongodb
	State    string    `json:"state"` // the worst that a sidecar reports
	Since    time.Time `json:"since"`
	Error    string    `json:"error,omitempty"`
	Sidecars []string  `json:"sidecars"`
	Spooled  int64     `json:"spooled"` // events
	// unable counts the sidecars at which it does not take events, and oldest is when the oldest
	// spooled event was accepted.
	unable int
	oldest int64
}

// badness orders the states of a store.
var badness = map[string]int{"ok": 0, "draining": 1, "starting": 2, "away": 3, "disk_full": 4, "full": 5, "failed": 6}

// gather makes facts of what the sidecars report.
func gather(members []fleet.Member, demand map[string]fleet.Point, now time.Time) *facts {
	f := &facts{now: now, members: members, demand: demand, groups: map[groupKey]*group{}, stores: map[string]*Store{}}
	for i := range members {
		m := &members[i]
		if !m.Connected || m.StoreID == "" || m.Health == nil {
			continue
		}
		f.addStore(m)
		for name, g := range m.Health.Groups {
			all := f.group(m.StoreID, name)
			all.add(g)
			if g.Oldest != 0 { // by the sidecar's clock, and so is what has passed
				all.oldestFor = max(all.oldestFor, now.Add(m.Health.Skew).Sub(at(g.Oldest)))
			}
		}
		for name, d := range m.Health.DeadLetters {
			f.group(m.StoreID, name).dead = d
		}
	}
	return f
}

func (f *facts) addStore(m *fleet.Member) {
	p := &m.Health.Process
	s := f.stores[m.StoreID]
	if s == nil {
		s = &Store{Store: m.StoreID, Kind: p.StoreKind, State: p.StoreState, Since: at(p.StoreSince), Error: p.StoreError}
		f.stores[m.StoreID] = s
	}
	if worse := badness[p.StoreState] - badness[s.State]; worse > 0 || worse == 0 && at(p.StoreSince).Before(s.Since) {
		s.State, s.Since, s.Error = p.StoreState, at(p.StoreSince), p.StoreError
	}
	if badness[p.StoreState] >= badness["starting"] {
		s.unable++
	}
	s.Sidecars = append(s.Sidecars, m.NodeID)
	s.Spooled += p.SpoolEvents
	s.oldest = earlier(s.oldest, p.SpoolOldest)
}

func (f *facts) group(store string, name health.Group) *group {
	k := groupKey{store, name}
	if f.groups[k] == nil {
		f.groups[k] = &group{}
	}
	return f.groups[k]
}

// add adds what one sidecar says of a group.
func (g *group) add(s health.GroupState) {
	g.Lag += s.Lag
	g.InFlight += s.InFlight
	g.Members += s.Members
	g.Oldest = earlier(g.Oldest, s.Oldest)
	g.Paused = g.Paused || s.Paused
	g.StuckSince = earlier(g.StuckSince, s.StuckSince)
	if g.BlockedBy == "" {
		g.BlockedBy = s.BlockedBy
	}
}

// earlier is the earlier of two times, of which 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// trend has the lags of groups in the last moments.
type trend struct {
	last  time.Time
	known map[groupKey][]int64 // the latest last, at most trendSamples
}

const (
	trendEvery   = 5 * time.Second
	trendSamples = 6
	// growthLeast is the least growth of a lag within the samples that is worth a word.
	growthLeast = 100
)

// growth is what became of a lag within the samples.
type growth int

const (
	steady  growth = iota
	growing        // a little, or not all the time
	fast           // all the time, and by much
)

// follow notes how the lags of groups change.
func (t *trend) follow(f *facts) {
	if f.now.Sub(t.last) >= trendEvery {
		t.last = f.now
		known := map[groupKey][]int64{}
		for k, g := range f.groups {
			if g.Lag > 0 && !g.Paused {
				samples := append(t.known[k], g.Lag)
				known[k] = samples[max(len(samples)-trendSamples, 0):]
			}
		}
		t.known = known
	}
	for k, samples := range t.known {
		if g := f.groups[k]; g != nil {
			g.growing = grows(samples)
		}
	}
}

// grows compares the first half of samples with the second: reports of several sidecars come at
// several times, so that single samples say little.
func grows(samples []int64) growth {
	if len(samples) < trendSamples {
		return steady
	}
	first, second := samples[:trendSamples/2], samples[trendSamples/2:]
	was, is := first[0], second[0]
	for i := range first {
		was, is = max(was, first[i]), min(is, second[i])
	}
	switch by := is - was; {
	case by >= growthLeast && by*10 >= was:
		return fast
	case by > 0:
		return growing
	}
	return steady
}
