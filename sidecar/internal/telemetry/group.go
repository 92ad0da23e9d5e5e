package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// othersOf are the groups of the topic that are beyond the bound.
func othersOf(g eventlog.GroupName) eventlog.GroupName {
	return eventlog.GroupName{Topic: g.Topic, Group: otherLabel}
}

// Group counts the deliveries to one consumer group, and its acks and nacks.
type Group struct {
	labels
	consumed, processed labels // by OpenTelemetry's conventions
	name                eventlog.GroupName

	latency, pushDuration, processing histogram
	pushes                            sync.Map // of *counted, by status

	delivered, acked, nacked, redelivered, deadLettered, passedOver, expired atomic.Int64
}

func newGroup(g eventlog.GroupName) *Group {
	return &Group{
		name: g, labels: newLabels(attribute.String("topic", g.Topic), attribute.String("group", g.Group)),
		consumed:  semanticLabels("deliver", g.Topic, semanticGroup(g.Group)...),
		processed: semanticLabels("process", g.Topic, semanticGroup(g.Group)...),
	}
}

// Delivered counts events sent to a member, redeliveries included.
func (g *Group) Delivered(n int) { g.delivered.Add(int64(n)) }

// Acked counts events that a member acked.
func (g *Group) Acked(n int) { g.acked.Add(int64(n)) }

// Nacked counts events that a member nacked.
func (g *Group) Nacked(n int) { g.nacked.Add(int64(n)) }

// Redelivered counts events sent with an attempt above 1.
func (g *Group) Redelivered(n int) { g.redelivered.Add(int64(n)) }

// DeadLettered counts events moved to the dead-letter topic.
func (g *Group) DeadLettered(n int) { g.deadLettered.Add(int64(n)) }

// PassedOver counts events that were removed before the group read them.
func (g *Group) PassedOver(n int) { g.passedOver.Add(int64(n)) }

// Expired counts events whose own ttl passed before the group settled them.
func (g *Group) Expired(n int) { g.expired.Add(int64(n)) }

// Latency counts one event that was acked: so long after it was accepted, and after it was sent.
func (g *Group) Latency(accepted, sent time.Duration) {
	g.latency.record(accepted)
	g.processing.record(sent)
}

// Pushed counts one request to the group's endpoint of --push, by the status of its answer, that took d.
func (g *Group) Pushed(status string, d time.Duration) {
	countIn(&g.pushes, status, 1, func() *counted {
		return &counted{labels: newLabels(
			attribute.String("topic", g.name.Topic), attribute.String("group", g.name.Group), attribute.String("status", status))}
	})
	g.pushDuration.record(d)
}

func (g *Group) observe(o metric.Observer, i *instruments) {
	o.ObserveInt64(i.delivered, g.delivered.Load(), g.options...)
	o.ObserveInt64(i.consumed, g.delivered.Load(), g.consumed.options...)
	o.ObserveInt64(i.acked, g.acked.Load(), g.options...)
	o.ObserveInt64(i.nacked, g.nacked.Load(), g.options...)
	o.ObserveInt64(i.redelivered, g.redelivered.Load(), g.options...)
	o.ObserveInt64(i.deadLettered, g.deadLettered.Load(), g.options...)
	o.ObserveInt64(i.passedOver, g.passedOver.Load(), g.options...)
	o.ObserveInt64(i.expired, g.expired.Load(), g.options...)
	for _, c := range g.pushes.Range {
		c := c.(*counted)
		o.ObserveInt64(i.pushes, c.n.Load(), c.options...)
	}
}
