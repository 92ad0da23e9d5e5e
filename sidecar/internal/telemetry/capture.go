package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// CaptureStat is how the capture of a collection goes.
type CaptureStat struct {
	Capture, Topic string
	Stopped        bool
	Lag            *float64 // seconds; nil where another sidecar captures
}

// Capture counts what becomes of the changes of one collection.
type Capture struct {
	inst   *instruments
	names  []attribute.KeyValue
	labels labels
}

// Capture makes the counters of a collection that is captured to a topic.
func (m *Metrics) Capture(collection, topic string) *Capture {
	c := &Capture{inst: m.inst, names: captureNames(collection, topic)}
	c.labels = newLabels(c.names...)
	c.Published(0)
	return c
}

func captureNames(collection, topic string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("capture", collection), attribute.String("topic", topic)}
}

// Published counts changes whose events are durable.
func (c *Capture) Published(n int) {
	c.inst.capturePublished.Add(context.Background(), int64(n), c.labels.add...)
}

// Failed counts one change that was left out.
func (c *Capture) Failed(code wire.Code) {
	c.inst.captureFailed.Add(context.Background(), 1, c.with(code).add...)
}

// Deferred counts one refusal of changes that are tried again.
func (c *Capture) Deferred(code wire.Code) {
	c.inst.captureDeferred.Add(context.Background(), 1, c.with(code).add...)
}

func (c *Capture) with(code wire.Code) labels {
	return newLabels(append(c.names[:len(c.names):len(c.names)], attribute.String("code", string(code)))...)
}

func (m *Metrics) observeCaptures(o metric.Observer, stats []CaptureStat) {
	for _, s := range stats {
		if s.Lag == nil {
			continue
		}
		labels := newLabels(captureNames(s.Capture, s.Topic)...)
		stopped := int64(0)
		if s.Stopped {
			stopped = 1
		}
		o.ObserveInt64(m.inst.captureLag, int64(*s.Lag), labels.observe...)
		o.ObserveInt64(m.inst.captureStopped, stopped, labels.observe...)
	}
}
