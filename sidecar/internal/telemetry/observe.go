package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// GroupStat is the state of one consumer group on this sidecar.
type GroupStat struct {
	Topic, Group  string
	Inflight, Lag int64     // events
	Members       int       // that are connected here
	Oldest        time.Time // when the oldest event that is not settled was accepted; zero: there is none, or it is not known
	Paused        bool      // by its topic's policy
}

// DeadStat is the dead letters of a group.
type DeadStat struct {
	Topic, Group   string // that they died in
	Count          int64
	Oldest, Newest time.Time // when the first and the last of them died; zero: there is none
}

// SpoolStat counts the events in the spool, which wait for the store.
type SpoolStat struct {
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}

// DiskStat is the state of the disk that events are stored on here, in bytes.
type DiskStat struct {
	Free     int64 `json:"free_bytes"`
	LowWater int64 `json:"low_water_bytes"`
	Short    bool  `json:"short"` // nothing is stored
}

// ObserveGroups makes every scrape call f. A group that f no longer returns disappears from the
// exposition. Several goroutines may call f at once, and f must return soon, since the scrape waits
// for it. Call ObserveGroups once.
func (m *Metrics) ObserveGroups(f func() []GroupStat) {
	m.observe(func(o metric.Observer) { m.observeGroups(o, f(), time.Now()) })
}

// ObservePolicies makes every scrape call f, as ObserveGroups does.
func (m *Metrics) ObservePolicies(f func() []policy.InForce) {
	m.observe(func(o metric.Observer) {
		for i, p := range f() {
			if i >= m.series.topics.max && m.series.topics.find(p.Name) == nil {
				continue // a sidecar has every policy, and may use few
			}
			o.ObserveInt64(m.inst.policyVersion, 1, newLabels(
				attribute.String("policy", p.Name),
				attribute.String("version", p.Version.String()),
				attribute.String("source", p.Source),
			).options...)
		}
	})
}

// ObserveStore makes every scrape call f, as ObserveGroups does: whether the store answers and takes
// events.
func (m *Metrics) ObserveStore(f func() bool) {
	m.observe(func(o metric.Observer) { o.ObserveInt64(m.inst.storeUp, oneIf(f())) })
}

// ObserveSpool makes every scrape call f, as ObserveGroups does. Without it the spool is empty: the
// store is a local one.
func (m *Metrics) ObserveSpool(f func() SpoolStat) {
	m.observe(func(o metric.Observer) {
		spool := f()
		o.ObserveInt64(m.inst.spoolEvents, spool.Events)
		o.ObserveInt64(m.inst.spoolBytes, spool.Bytes)
	})
}

// ObserveAuthFailures makes every scrape call f, as ObserveGroups does. f counts wrong tokens since
// the start: checked ones, and unchecked ones.
func (m *Metrics) ObserveAuthFailures(f func() (refused, unseen int64)) {
	m.observe(func(o metric.Observer) {
		refused, unseen := f()
		o.ObserveInt64(m.inst.authFailures, refused, newLabels(attribute.String("outcome", "refused")).options...)
		o.ObserveInt64(m.inst.authFailures, unseen, newLabels(attribute.String("outcome", "rate_limited")).options...)
	})
}

// ObserveBuffered makes every scrape call f, as ObserveGroups does: the memory of all connections,
// in bytes.
func (m *Metrics) ObserveBuffered(f func() int64) {
	m.observe(func(o metric.Observer) { o.ObserveInt64(m.inst.bufferedBytes, f()) })
}

// ObserveDisk makes every scrape call f, as ObserveGroups does.
func (m *Metrics) ObserveDisk(f func() DiskStat) {
	m.observe(func(o metric.Observer) {
		disk := f()
		o.ObserveInt64(m.inst.diskFree, disk.Free)
		o.ObserveInt64(m.inst.diskLowWater, disk.LowWater)
		o.ObserveInt64(m.inst.diskShort, oneIf(disk.Short))
	})
}

// ObserveDead makes every scrape call f, as ObserveGroups does.
func (m *Metrics) ObserveDead(f func() []DeadStat) {
	m.observe(func(o metric.Observer) { m.observeDead(o, f(), time.Now()) })
}

// ObserveScheduled makes every scrape call f, as ObserveGroups does: what is scheduled of each topic.
func (m *Metrics) ObserveScheduled(f func() map[string]eventlog.Waiting) {
	m.observe(func(o metric.Observer) {
		counts := map[string]int64{}
		for topic, w := range f() {
			counts[topic] = w.Events
		}
		observeTopics(m, o, m.inst.scheduled, counts)
	})
}

// ObserveTenants makes every scrape call f, as ObserveGroups does: how many tenants of each topic
// have a bucket of their own.
func (m *Metrics) ObserveTenants(f func() map[string]int) {
	m.observe(func(o metric.Observer) { observeTopics(m, o, m.inst.tenants, f()) })
}

// observeTopics sums the values of topics that share a label.
func observeTopics[N int | int64](m *Metrics, o metric.Observer, gauge metric.Int64ObservableGauge, counts map[string]N) {
	sums := make(map[*Topic]int64, len(counts))
	for topic, n := range counts {
		sums[m.Topic(topic)] += int64(n)
	}
	for t, n := range sums {
		o.ObserveInt64(gauge, n, t.options...)
	}
}

// observeDead sums the values of topics that share a label.
func (m *Metrics) observeDead(o metric.Observer, stats []DeadStat, now time.Time) {
	sums := make(map[*Topic]DeadStat, len(stats))
	for _, s := range stats {
		t := m.Topic(s.Topic)
		sum := sums[t]
		sum.Count += s.Count
		sum.Oldest = Earlier(sum.Oldest, s.Oldest)
		sums[t] = sum
	}
	for t, sum := range sums {
		o.ObserveInt64(m.inst.deadLetters, sum.Count, t.options...)
		o.ObserveInt64(m.inst.deadLetterAge, int64(age(sum.Oldest, now).Seconds()), t.options...)
	}
}

// Earlier is the earlier one of two times, of which the zero value is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// age is how long ago t was; 0 for the zero value.
func age(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(now.Sub(t), 0)
}

// observe makes every scrape call f.
func (m *Metrics) observe(f func(metric.Observer)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observers = append(m.observers, f)
}

func (m *Metrics) observeAll(_ context.Context, o metric.Observer) error {
	m.mu.Lock()
	observers := m.observers
	m.mu.Unlock()
	for _, f := range observers {
		f(o)
	}
	for _, t := range m.series.topics.all() {
		t.observe(o, m.inst)
	}
	for _, g := range m.series.groups.all() {
		g.observe(o, m.inst)
	}
	return nil
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// observeGroups sums the values of groups that share a handle: of several observations with the
// same labels only the last would count.
func (m *Metrics) observeGroups(o metric.Observer, stats []GroupStat, now time.Time) {
	sums := make(map[*Group]GroupStat, len(stats))
	for _, s := range stats {
		g := m.Group(s.Topic, s.Group)
		sum := sums[g]
		sum.Inflight += s.Inflight
		sum.Lag += s.Lag
		sum.Members += s.Members
		sum.Oldest = Earlier(sum.Oldest, s.Oldest)
		sum.Paused = sum.Paused || s.Paused
		sums[g] = sum
	}
	for g, sum := range sums {
		o.ObserveInt64(m.inst.inflight, sum.Inflight, g.options...)
		o.ObserveInt64(m.inst.lag, sum.Lag, g.options...)
		o.ObserveInt64(m.inst.members, int64(sum.Members), g.options...)
		o.ObserveFloat64(m.inst.oldestUnacked, age(sum.Oldest, now).Seconds(), g.options...)
		if sum.Paused {
			o.ObserveInt64(m.inst.paused, 1, g.options...)
		}
	}
}

// Totals are sums over all topics and groups. They fall when a topic or group is forgotten.
type Totals struct{ Published, Refused, Delivered, Dead int64 }

// Totals sums what was counted since the start.
func (m *Metrics) Totals() (sum Totals) {
	for _, t := range m.series.topics.all() {
		sum.Published += t.published.Load()
	}
	m.EachRefused(func(_ string, _ wire.Code, n int64) { sum.Refused += n })
	for _, g := range m.series.groups.all() {
		sum.Delivered += g.delivered.Load()
		sum.Dead += g.deadLettered.Load()
	}
	return sum
}
