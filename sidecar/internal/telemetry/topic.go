package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Topic counts the publishes to one topic.
type Topic struct {
	labels
	sent  labels // by OpenTelemetry's conventions
	label string

	published, duplicate      atomic.Int64
	publishDuration, lateness histogram

	byCode sync.Map // of *counted: refusals, as they occur
}

// counted is one of the series of a topic or a group that come as they occur.
type counted struct {
	labels
	sent labels // of refusals, by OpenTelemetry's conventions
	n    atomic.Int64
}

func newTopic(label string) *Topic {
	return &Topic{label: label, labels: newLabels(attribute.String("topic", label)), sent: semanticLabels("send", label)}
}

// Published counts events that were accepted and are new.
func (t *Topic) Published(n int) { t.published.Add(int64(n)) }

// Duplicate counts events that the log already held.
func (t *Topic) Duplicate(n int) { t.duplicate.Add(int64(n)) }

// Rejected counts events that were refused with the code.
func (t *Topic) Rejected(code wire.Code, n int) {
	countIn(&t.byCode, string(code), n, func() *counted {
		return &counted{
			labels: newLabels(attribute.String("topic", t.label), attribute.String("code", string(code))),
			sent:   semanticLabels("send", t.label, semconv.ErrorTypeKey.String(string(code))),
		}
	})
}

// EachRefused calls f with the number of events that were refused since the start, by topic and code.
func (m *Metrics) EachRefused(f func(topic string, code wire.Code, n int64)) {
	for _, t := range m.series.topics.all() {
		for code, r := range t.byCode.Range {
			f(t.label, wire.Code(code.(string)), r.(*counted).n.Load())
		}
	}
}

// countIn adds to the series of a value in a map, which first makes where there is none.
func countIn(series *sync.Map, value string, n int, first func() *counted) {
	c, ok := series.Load(value)
	if !ok {
		c, _ = series.LoadOrStore(value, first())
	}
	c.(*counted).n.Add(int64(n))
}

// Late counts a scheduled event that came into the log d after it was due.
func (t *Topic) Late(d time.Duration) { t.lateness.record(d) }

// PublishDuration counts one publish request that was answered after d.
func (t *Topic) PublishDuration(d time.Duration) { t.publishDuration.record(d) }

func (t *Topic) observe(o metric.Observer, i *instruments) {
	o.ObserveInt64(i.published, t.published.Load(), t.options...)
	o.ObserveInt64(i.duplicate, t.duplicate.Load(), t.options...)
	o.ObserveInt64(i.sent, t.published.Load()+t.duplicate.Load(), t.sent.options...)
	for _, r := range t.byCode.Range {
		r := r.(*counted)
		o.ObserveInt64(i.rejected, r.n.Load(), r.options...)
		o.ObserveInt64(i.sent, r.n.Load(), r.sent.options...)
	}
}
