package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Bounds of the topics.
const (
	// MaxTopics and MaxUsages bound the topics, and the pairs of a topic and a sidecar, that one
	// control plane counts. Further ones are not shown, and counted by Uncounted.
	MaxTopics = 20_000
	MaxUsages = 200_000
	// KeepTopic is how long a topic, or a sidecar's part of it, is shown after its last use.
	KeepTopic = 10 * time.Minute

	// reportEvery is the least interval of sidecars' reports while there is anything to report: the
	// events of a report happened since the last one.
	reportEvery = time.Second
	// sweepEvery is the interval of the sweeps.
	sweepEvery = time.Minute
)

// usage is the use of topics by the sidecars of one control plane.
type usage struct {
	topics    map[string]*topicUse
	pairs     int // over all topics
	swept     time.Duration
	uncounted int64
}

// topicUse is the use of one topic.
type topicUse struct {
	history ring
	used    time.Duration   // last
	by      map[string]*use // by node id
}

// use is the use of a topic by one sidecar.
type use struct {
	recent ring
	used   time.Duration // last
	share  *float64
}

// Usage adds the events of a topic that a sidecar let through and refused since its last report.
// Two sidecars of one node id are added up.
func (r *Registry) Usage(node, topic string, allowed, denied uint64, at time.Time) {
	if allowed == 0 && denied == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.elapsed(at)
	r.hours.add(topic, node, now, float64(allowed)+float64(denied))
	over := reportEvery
	if t := r.usage.topics[topic]; t != nil && t.by[node] != nil {
		over = min(over, now-t.by[node].used)
	}
	if t, u := r.use(node, topic, now); u != nil {
		p := Point{Allowed: float64(allowed), Denied: float64(denied)}
		t.history.add(now, over, p)
		u.recent.add(now, over, p)
	}
}

// Share sets a sidecar's share of a topic's fleet-wide rate; below zero: it has none.
func (r *Registry) Share(node, topic string, perSecond float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if perSecond < 0 {
		if t := r.usage.topics[topic]; t != nil && t.by[node] != nil {
			t.by[node].share = nil
		}
		return
	}
	if _, u := r.use(node, topic, r.elapsed(r.now())); u != nil {
		u.share = &perSecond
	}
}

// Uncounted returns how often a topic, or its use, was left out because of a bound.
func (r *Registry) Uncounted() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage.uncounted
}

// elapsed is the time since the registry began.
func (r *Registry) elapsed(at time.Time) time.Duration { return max(at.Sub(r.start), 0) }

// use returns a sidecar's use of a topic. It adds one if there is room, else it returns nil.
func (r *Registry) use(node, topic string, now time.Duration) (*topicUse, *use) {
	r.sweep(now)
	t := r.usage.topics[topic]
	if t == nil || t.by[node] == nil {
		if r.usage.pairs >= MaxUsages || t == nil && len(r.usage.topics) >= MaxTopics {
			r.usage.uncounted++
			return nil, nil
		}
		if t == nil {
			t = &topicUse{history: newRing(historyRing, now), by: map[string]*use{}}
			r.usage.topics[topic] = t
		}
		t.by[node] = &use{recent: newRing(rateRing, now)}
		r.usage.pairs++
	}
	t.used, t.by[node].used = now, now
	return t, t.by[node]
}

// sweep removes what is over, now and then.
func (r *Registry) sweep(now time.Duration) {
	if now-r.usage.swept >= sweepEvery {
		r.usage.sweep(now)
		r.hours.sweep(now)
		r.reasons.sweep(now)
	}
}

// remove removes a topic that is in use.
func (u *usage) remove(name string) {
	u.pairs -= len(u.topics[name].by)
	delete(u.topics, name)
}

// sweep removes uses that are over KeepTopic old.
func (u *usage) sweep(now time.Duration) {
	u.swept = now
	u.pairs = 0
	for name, t := range u.topics {
		maps.DeleteFunc(t.by, func(_ string, part *use) bool { return now-part.used > KeepTopic })
		if len(t.by) == 0 {
			delete(u.topics, name)
		}
		u.pairs += len(t.by)
	}
}

// Topics returns the topics that exist, and those in use within the last ten minutes, by the
// sidecars of all control planes, ascending by name. Rates and histories end one to two seconds
// ago, when all sidecars have reported.
func (r *Registry) Topics(history bool) []Topic {
	r.mu.Lock()
	own, exist, refusals := r.ownTopics(history), [][]string{r.existingNames()}, r.refusedByTopic()
	others := r.others
	r.mu.Unlock()
	sets := [][]Topic{own}
	for _, o := range others {
		sets, exist = append(sets, o.topics), append(exist, o.existing)
		for topic, codes := range o.reasons {
			addRefusals(refusals, topic, codes)
		}
	}
	topics := mergeTopics(sets, exist, history)
	for i := range topics {
		topics[i].Refusals = refusals[topics[i].Topic]
	}
	return topics
}

// ownTopics returns those of this control plane's sidecars, in no order.
func (r *Registry) ownTopics(history bool) []Topic {
	now := r.elapsed(r.now())
	out := make([]Topic, 0, len(r.usage.topics))
	for name, t := range r.usage.topics {
		if now-t.used > KeepTopic {
			continue
		}
		rate := t.history.rate(now)
		topic := Topic{Topic: name, AllowedPerSecond: rate.Allowed, DeniedPerSecond: rate.Denied, BySidecar: make([]Usage, 0, len(t.by))}
		for node, u := range t.by {
			if now-u.used > KeepTopic {
				continue
			}
			part := u.recent.rate(now)
			topic.BySidecar = append(topic.BySidecar, Usage{NodeID: node,
				AllowedPerSecond: part.Allowed, DeniedPerSecond: part.Denied, SharePerSecond: u.share})
		}
		if history {
			topic.History = t.history.history(now)
		}
		out = append(out, topic)
	}
	return out
}

// mergeTopics adds up the topics of several control planes. It does not change its arguments.
func mergeTopics(sets [][]Topic, exist [][]string, history bool) []Topic {
	sums := map[string]*Topic{}
	sumOf := func(name string) *Topic {
		sum := sums[name]
		if sum == nil {
			sum = &Topic{Topic: name}
			if history {
				sum.History = make([]Point, historySlots)
			}
			sums[name] = sum
		}
		return sum
	}
	for _, set := range sets {
		for _, t := range set {
			sum := sumOf(t.Topic)
			sum.AllowedPerSecond += t.AllowedPerSecond
			sum.DeniedPerSecond += t.DeniedPerSecond
			sum.BySidecar = append(sum.BySidecar, t.BySidecar...)
			for i := range min(len(t.History), len(sum.History)) {
				count(&sum.History[i], t.History[i], 1)
			}
		}
	}
	for _, names := range exist {
		for _, name := range names {
			sumOf(name)
		}
	}
	out := make([]Topic, 0, len(sums))
	for _, t := range sums {
		finish(t)
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Topic) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}

// finish prepares a sum to be shown: one element per node id, with rounded numbers.
func finish(t *Topic) {
	slices.SortStableFunc(t.BySidecar, func(a, b Usage) int { return cmp.Compare(a.NodeID, b.NodeID) })
	parts := make([]Usage, 0, len(t.BySidecar))
	t.Sidecars = make([]string, 0, len(t.BySidecar))
	for _, u := range t.BySidecar {
		if n := len(parts); n > 0 && parts[n-1].NodeID == u.NodeID {
			addUsage(&parts[n-1], u)
			continue
		}
		parts = append(parts, u)
		t.Sidecars = append(t.Sidecars, u.NodeID)
	}
	for i := range parts {
		parts[i].AllowedPerSecond, parts[i].DeniedPerSecond = round(parts[i].AllowedPerSecond), round(parts[i].DeniedPerSecond)
	}
	t.BySidecar = parts
	t.AllowedPerSecond, t.DeniedPerSecond = round(t.AllowedPerSecond), round(t.DeniedPerSecond)
	for i, p := range t.History {
		t.History[i] = Point{Allowed: round(p.Allowed), Denied: round(p.Denied)}
	}
}

// addUsage adds the use of a sidecar of the same node id at another control plane: another sidecar,
// or the same one after it moved.
func addUsage(u *Usage, v Usage) {
	u.AllowedPerSecond += v.AllowedPerSecond
	u.DeniedPerSecond += v.DeniedPerSecond
	if v.SharePerSecond != nil {
		share := *v.SharePerSecond
		if u.SharePerSecond != nil {
			share += *u.SharePerSecond
		}
		u.SharePerSecond = &share
	}
}

func round(x float64) float64 { return math.Round(x*100) / 100 }
