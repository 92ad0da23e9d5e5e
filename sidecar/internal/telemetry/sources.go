package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Source counts the published and refused documents of one outbox, or changes of one captured
// collection.
type Source struct {
	names            []attribute.KeyValue
	published        func(n int)
	failed, deferred metric.Int64Counter
}

// Published counts documents or changes whose events are durable.
func (s *Source) Published(n int) { s.published(n) }

// Failed counts one that was refused for good.
func (s *Source) Failed(code wire.Code) { s.refused(s.failed, code) }

// Deferred counts one refusal that is tried again.
func (s *Source) Deferred(code wire.Code) { s.refused(s.deferred, code) }

func (s *Source) refused(c metric.Int64Counter, code wire.Code) {
	names := append(s.names[:len(s.names):len(s.names)], attribute.String("code", string(code)))
	c.Add(context.Background(), 1, metric.WithAttributes(names...))
}

// counter returns a function that counts. It starts by counting 0: if a counter first appears at 1,
// no rate shows that event.
func counter(c metric.Int64Counter, names ...attribute.KeyValue) func(n int) {
	options := []metric.AddOption{metric.WithAttributes(names...)}
	count := func(n int) { c.Add(context.Background(), int64(n), options...) }
	count(0)
	return count
}

// Outbox counts the published and refused documents of one outbox.
type Outbox struct {
	Source
	placeLost func(n int)
}

// Outbox makes the counters of an outbox; its name must not hold secrets.
func (m *Metrics) Outbox(name string) *Outbox {
	label := attribute.String("outbox", name)
	i := m.inst
	return &Outbox{
		Source:    Source{[]attribute.KeyValue{label}, counter(i.outboxPublished, label), i.outboxFailed, i.outboxDeferred},
		placeLost: counter(i.outboxPlaceLost, label),
	}
}

// PlaceLost counts one change stream that lost its place in the oplog.
func (o *Outbox) PlaceLost() { o.placeLost(1) }

// CaptureStat is the state of the capture of a collection.
type CaptureStat struct {
	Capture, Topic string
	Stopped        bool
	Lag            *float64 // seconds; nil if this sidecar does not capture
}

// Capture makes the counters of a collection that is captured to a topic.
func (m *Metrics) Capture(collection, topic string) *Source {
	names, i := captureNames(collection, topic), m.inst
	return &Source{names, counter(i.capturePublished, names...), i.captureFailed, i.captureDeferred}
}

func captureNames(collection, topic string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("capture", collection), attribute.String("topic", topic)}
}

// ObserveCaptures makes every scrape call f, as ObserveGroups does.
func (m *Metrics) ObserveCaptures(f func() []CaptureStat) {
	m.observe(func(o metric.Observer) {
		for _, s := range f() {
			if s.Lag == nil {
				continue
			}
			labels := newLabels(captureNames(s.Capture, s.Topic)...)
			o.ObserveInt64(m.inst.captureLag, int64(*s.Lag), labels.options...)
			o.ObserveInt64(m.inst.captureStopped, oneIf(s.Stopped), labels.options...)
		}
	})
}
