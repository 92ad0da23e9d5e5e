package health

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// lookEvery is how often the fleet is looked at.
	lookEvery = time.Second
	// pointEvery is the interval of the points of the history, and maxPoints how many there are.
	pointEvery = 15 * time.Second
	maxPoints  = int(time.Hour / pointEvery)
	// maxShown bounds the incidents of an overview.
	maxShown = 200
)

// Fleet is what a Tracker looks at.
type Fleet interface {
	Members() []fleet.Member
	Demand() map[string]fleet.Point
	// TopicCount is how many topics exist, or are in use.
	TopicCount() int
}

// Overview is what there is to know at first sight.
type Overview struct {
	Incidents []Incident `json:"incidents"`
	Totals
}

// Totals are the numbers of an overview.
type Totals struct {
	// More counts the incidents beside those of the overview.
	More               int       `json:"more,omitempty"`
	Sidecars           Sidecars  `json:"sidecars"`
	Versions           []Version `json:"versions"`
	Stores             int       `json:"stores"`
	Topics             int       `json:"topics"`
	PublishedPerSecond float64   `json:"published_per_second"`
	DeliveredPerSecond float64   `json:"delivered_per_second"`
	RefusedPerSecond   float64   `json:"refused_per_second"`
	DeadPerSecond      float64   `json:"dead_per_second"`
}

// Sidecars counts the sidecars that are connected, and those that are missing.
type Sidecars struct {
	Live    int `json:"live"`
	Missing int `json:"missing"`
}

// Version counts the connected sidecars of a version.
type Version struct {
	Version  string `json:"version"`
	Sidecars int    `json:"sidecars"`
}

// Point is the rates of the fleet at a moment.
type Point struct {
	At        time.Time `json:"at"`
	Published float64   `json:"published"`
	Delivered float64   `json:"delivered"`
	Refused   float64   `json:"refused"`
	Dead      float64   `json:"dead"`
}

// Tracker looks at the fleet again and again. It is safe for concurrent use.
type Tracker struct {
	fleet Fleet

	// Of Run alone.
	episodes map[key]episode
	trend    trend
	lags     lags

	mu       sync.Mutex
	overview Overview
	stores   []Store
	history  []Point
	groups   map[string]wire.TopicGroups // by topic
	counts   map[string]int64            // incidents, by kind
	latest   *facts                      // of the last look; nobody changes them any more
	lagsThen map[groupKey][]int64
}

// NewTracker makes a Tracker.
func NewTracker(f Fleet) *Tracker {
	return &Tracker{fleet: f, overview: Overview{[]Incident{}, Totals{Versions: []Version{}}}, stores: []Store{}}
}

// Run looks until ctx ends.
func (t *Tracker) Run(ctx context.Context) error {
	for {
		t.look(time.Now())
		if !pause.For(ctx, lookEvery) {
			return nil
		}
	}
}

func (t *Tracker) look(now time.Time) {
	f := gather(t.fleet.Members(), t.fleet.Demand(), now)
	t.trend.follow(f)
	t.lags.follow(f)
	found := map[string][]finding{}
	for _, k := range kinds {
		found[k.name] = k.find(f)
	}
	t.episodes = advance(t.episodes, found, now)
	open := incidents(t.episodes)
	o := f.overview()
	o.Incidents, o.Topics = open[:min(len(open), maxShown)], t.fleet.TopicCount()
	o.More = len(open) - len(o.Incidents)
	counts := map[string]int64{}
	for i := range kinds {
		counts[kinds[i].name] = 0
	}
	for i := range open {
		counts[open[i].Kind]++
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.overview, t.stores, t.groups, t.counts = o, f.storeList(), f.topicGroups(), counts
	t.latest, t.lagsThen = f, t.lags.known
	if n := len(t.history); n == 0 || now.Sub(t.history[n-1].At) >= pointEvery {
		p := Point{now.UTC().Truncate(time.Second), o.PublishedPerSecond, o.DeliveredPerSecond, o.RefusedPerSecond, o.DeadPerSecond}
		t.history = append(t.history, p)[max(n+1-maxPoints, 0):]
	}
}

// overview sums what the connected sidecars report.
func (f *facts) overview() (o Overview) {
	versions := map[string]int{}
	for i := range f.members {
		m := &f.members[i]
		switch {
		case m.Connected:
			o.Sidecars.Live++
			versions[m.Version]++
		case m.Missing:
			o.Sidecars.Missing++
		}
		if m.Connected && m.Health != nil {
			o.PublishedPerSecond += m.Health.Rates.Published
			o.DeliveredPerSecond += m.Health.Rates.Delivered
			o.RefusedPerSecond += m.Health.Rates.Refused
			o.DeadPerSecond += m.Health.Rates.Dead
		}
	}
	o.Stores, o.Versions = len(f.stores), []Version{}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		o.Versions = append(o.Versions, Version{name, versions[name]})
	}
	return o
}

// storeList are the stores, the worst first.
func (f *facts) storeList() []Store {
	list := []Store{}
	for _, s := range f.stores {
		slices.Sort(s.Sidecars)
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Store) int {
		return cmp.Or(badness[b.State]-badness[a.State], cmp.Compare(a.Store, b.Store))
	})
	return list
}

// topicGroups are the groups of each topic that has some.
func (f *facts) topicGroups() map[string]wire.TopicGroups {
	topics := map[string]wire.TopicGroups{}
	for k, g := range f.groups {
		t := topics[k.Topic]
		if k.Group.Group != "" { // dead letters may be of no group
			t.Groups++
		}
		t.Lag = max(t.Lag, g.Lag)
		t.DeadLetters += g.dead.Count
		topics[k.Topic] = t
	}
	return topics
}

// Overview is as of the last look. Nobody changes what it holds.
func (t *Tracker) Overview() Overview {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overview
}

// Stores are those of connected sidecars, the worst first.
func (t *Tracker) Stores() []Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stores
}

// TopicGroups are the groups of each topic that has some.
func (t *Tracker) TopicGroups() map[string]wire.TopicGroups {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.groups
}

// History has the rates of the fleet in the last hour, the latest last.
func (t *Tracker) History() []Point {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.history)
}

// Counts are the incidents, by kind.
func (t *Tracker) Counts() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}
