package telemetry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// durationBounds go from a cached answer to the longest wait that still tells something, in
// seconds: 50 µs to an hour.
var durationBounds = []float64{
	50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3,
	50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

// histogram is one series of durations. The SDK keeps each series of its own histograms for good;
// this one goes with the topic or the group that has it.
type histogram struct {
	counts [23]atomic.Uint64 // by bucket: one more than durationBounds
	sum    atomic.Int64      // in nanoseconds
}

func (h *histogram) record(d time.Duration) {
	i, _ := slices.BinarySearch(durationBounds, d.Seconds())
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// histograms are the metrics that are histograms of a topic or a group.
var histograms = []struct {
	name, help string
	labels     []string
	of         func(*Topic) (*histogram, *labels)
	ofGroup    func(*Group) (*histogram, *labels)
}{
	{"sluice_publish_duration_seconds", "From a publish's arrival to its answer.", topicLabels,
		func(t *Topic) (*histogram, *labels) { return &t.publishDuration, &t.labels }, nil},
	{"sluice_scheduled_lateness_seconds", "From when a scheduled event was due until it was in the log.", topicLabels,
		func(t *Topic) (*histogram, *labels) { return &t.lateness, &t.labels }, nil},
	{"sluice_delivery_latency_seconds", "From an event's acceptance to the group's ack.", groupLabels,
		nil, func(g *Group) (*histogram, *labels) { return &g.latency, &g.labels }},
	{"sluice_push_duration_seconds", "From a request of --push to its answer.", groupLabels,
		nil, func(g *Group) (*histogram, *labels) { return &g.pushDuration, &g.labels }},
	{"messaging.client.operation.duration", "From a publish's arrival to its answer.", durationLabels,
		func(t *Topic) (*histogram, *labels) { return &t.publishDuration, &t.sent }, nil},
	{"messaging.process.duration", "From an event's delivery to a member of the group to its ack.", consumedLabels,
		nil, func(g *Group) (*histogram, *labels) { return &g.processing, &g.processed }},
}

// producer gives one reader the histograms.
type producer struct {
	series *series
	// A reader of deltas gets what was counted after last. Two scrapes may overlap.
	delta bool
	mu    sync.Mutex
	last  map[*labels]metricdata.HistogramDataPoint[float64]
}

// Produce implements sdkmetric.Producer.
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	last := make(map[*labels]metricdata.HistogramDataPoint[float64])
	topics, groups := p.series.topics.all(), p.series.groups.all()
	found := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scope}}
	for _, m := range histograms {
		data := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		if p.delta {
			data.Temporality = metricdata.DeltaTemporality
		}
		add := func(h *histogram, of *labels) {
			x := h.point(of.set, of.since, now)
			if x.Count == 0 {
				return
			}
			if p.delta {
				last[of] = x
				x = without(x, p.last[of])
			}
			data.DataPoints = append(data.DataPoints, x)
		}
		for _, t := range topics {
			if m.of != nil {
				add(m.of(t))
			}
		}
		for _, g := range groups {
			if m.ofGroup != nil {
				add(m.ofGroup(g))
			}
		}
		if len(data.DataPoints) > 0 {
			found.Metrics = append(found.Metrics, metricdata.Metrics{Name: m.name, Description: m.help, Unit: "s", Data: data})
		}
	}
	p.last = last
	return []metricdata.ScopeMetrics{found}, nil
}

func (h *histogram) point(set attribute.Set, since, now time.Time) metricdata.HistogramDataPoint[float64] {
	x := metricdata.HistogramDataPoint[float64]{
		Attributes: set, StartTime: since, Time: now, Bounds: durationBounds, BucketCounts: make([]uint64, len(h.counts)),
		Sum: time.Duration(h.sum.Load()).Seconds(),
	}
	for i := range h.counts {
		x.BucketCounts[i] = h.counts[i].Load()
		x.Count += x.BucketCounts[i]
	}
	return x
}

// without is what was counted after an earlier point, which may be the zero value.
func without(x, last metricdata.HistogramDataPoint[float64]) metricdata.HistogramDataPoint[float64] {
	if last.Count == 0 {
		return x
	}
	x.StartTime, x.BucketCounts = last.Time, slices.Clone(x.BucketCounts)
	x.Count, x.Sum = x.Count-last.Count, x.Sum-last.Sum
	for i, n := range last.BucketCounts {
		x.BucketCounts[i] -= n
	}
	return x
}

// producerFor makes the producer of a reader.
func (s *series) producerFor(t metricdata.Temporality) sdkmetric.Producer {
	return &producer{series: s, delta: t == metricdata.DeltaTemporality}
}
