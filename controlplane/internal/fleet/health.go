package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/health"
)

// Health is what a sidecar has reported of itself last. It is never changed.
type Health struct {
	*health.State
	At    time.Time     // when the report came
	Skew  time.Duration // of the sidecar's clock: above 0 it is ahead
	Rates Rates
}

// Rates are events per second, over the last interval of reports.
type Rates struct{ Published, Delivered, Refused, Dead float64 }

// Member is a sidecar and its health; nil: it has reported none.
type Member struct {
	Sidecar
	Health *Health
}

// SetHealth notes the state of a connected sidecar after a report that was sent at a time of its
// clock. A process that is not connected is ignored.
func (r *Registry) SetHealth(node, instance string, state *health.State, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[node]
	if m == nil || m.Instance != instance {
		return
	}
	now := r.now()
	next := &Health{State: state, At: now, Skew: sent.Sub(now)}
	if last := m.health; last != nil && now.After(last.At) {
		next.Rates = rates(last.Process.Counts, state.Process.Counts, now.Sub(last.At))
	}
	m.health = next
}

// rates are those between two counts. One that has fallen begins again.
func rates(was, is health.Counts, over time.Duration) Rates {
	perSecond := func(was, is int64) float64 { return round(float64(max(is-was, 0)) / over.Seconds()) }
	return Rates{
		Published: perSecond(was.Published, is.Published), Delivered: perSecond(was.Delivered, is.Delivered),
		Refused: perSecond(was.Refused, is.Refused), Dead: perSecond(was.Dead, is.Dead),
	}
}

// Members returns the sidecars as Sidecars does, but without the versions of their policies.
func (r *Registry) Members() []Member {
	list := r.all(false)
	out := make([]Member, len(list))
	for i := range list {
		out[i] = Member{Sidecar: list[i].Sidecar, Health: list[i].health}
	}
	return out
}

// Find returns the sidecar of a node id, the connected one if there are several, with all its versions
// and the topics that it has let events of through within the last ten minutes.
func (r *Registry) Find(node string) (m Member, topics []string, found bool) {
	list := r.all(true)
	i := slices.IndexFunc(list, func(s instance) bool { return s.NodeID == node })
	if i < 0 {
		return Member{}, nil, false
	}
	m = Member{Sidecar: list[i].Sidecar, Health: list[i].health}
	m.Versions = map[string]int64{}
	for _, part := range list[i].parts {
		maps.Copy(m.Versions, part.Versions)
	}
	return m, r.topicsOf(node), true
}

// topicsOf are the topics in use by a sidecar, ascending.
func (r *Registry) topicsOf(node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, names := r.elapsed(r.now()), map[string]struct{}{}
	for name, t := range r.usage.topics {
		if u := t.by[node]; u != nil && now-u.used <= KeepTopic {
			names[name] = struct{}{}
		}
	}
	for _, o := range r.others {
		for _, t := range o.topics {
			if slices.ContainsFunc(t.BySidecar, func(u Usage) bool { return u.NodeID == node }) {
				names[t.Topic] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Demand returns the events per second that are let through and refused, by topic, of the topics in
// use.
func (r *Registry) Demand() map[string]Point {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, all := r.elapsed(r.now()), map[string]Point{}
	for name, t := range r.usage.topics {
		if now-t.used <= KeepTopic {
			all[name] = t.history.rate(now)
		}
	}
	for _, o := range r.others {
		for i := range o.topics {
			sum := all[o.topics[i].Topic]
			count(&sum, Point{Allowed: o.topics[i].AllowedPerSecond, Denied: o.topics[i].DeniedPerSecond}, 1)
			all[o.topics[i].Topic] = sum
		}
	}
	return all
}

// packedHealth is a sidecar's health in the document for other control planes, without its log.
type packedHealth struct {
	State []byte // a report of all
	At    time.Time
	Skew  time.Duration
	Rates Rates
}

func (h *Health) pack() *packedHealth {
	if h == nil {
		return nil
	}
	all := (&health.State{}).Diff(h.State, 0)
	text, err := json.Marshal(&all)
	if err != nil {
		panic("fleet: " + err.Error()) // the types cannot fail
	}
	return &packedHealth{State: text, At: h.At, Skew: h.Skew, Rates: h.Rates}
}

func (p *packedHealth) unpack() (*Health, error) {
	if p == nil {
		return nil, nil
	}
	all, err := health.Parse(p.State)
	if err != nil {
		return nil, err
	}
	return &Health{State: (&health.State{}).Apply(all), At: p.At, Skew: p.Skew, Rates: p.Rates}, nil
}

// TopicCount is how many topics exist in the sidecars' stores, or are in use.
func (r *Registry) TopicCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]struct{}{}
	for name := range r.existing.names {
		names[name] = struct{}{}
	}
	now := r.elapsed(r.now())
	for name, t := range r.usage.topics {
		if now-t.used <= KeepTopic {
			names[name] = struct{}{}
		}
	}
	for _, o := range r.others {
		for _, name := range o.existing {
			names[name] = struct{}{}
		}
		for i := range o.topics {
			names[o.topics[i].Topic] = struct{}{}
		}
	}
	return len(names)
}
