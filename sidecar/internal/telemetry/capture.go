package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// CaptureStat is how the capture of a collection goes.
type CaptureStat struct {
	Capture, Topic string
	Stopped        bool
	Lag            *float64 // seconds; nil where another sidecar captures
}

// Capture makes the counters of a collection that is captured to a topic.
func (m *Metrics) Capture(collection, topic string) *Source {
	names, i := captureNames(collection, topic), m.inst
	return &Source{names, newLabels(names...).counter(i.capturePublished), i.captureFailed, i.captureDeferred}
}

func captureNames(collection, topic string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("capture", collection), attribute.String("topic", topic)}
}

// ObserveCaptures has f read at every scrape, on the terms of ObserveGroups.
func (m *Metrics) ObserveCaptures(f func() []CaptureStat) {
	m.observe(func(o metric.Observer) {
		for _, s := range f() {
			if s.Lag == nil {
				continue
			}
			labels := newLabels(captureNames(s.Capture, s.Topic)...)
			o.ObserveInt64(m.inst.captureLag, int64(*s.Lag), labels.observe...)
			o.ObserveInt64(m.inst.captureStopped, oneIf(s.Stopped), labels.observe...)
		}
	})
}
