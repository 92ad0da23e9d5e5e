package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// groupKey is the labels of one group; its topic is folded already.
type groupKey struct{ topic, group string }

func (k groupKey) other() groupKey { return groupKey{topic: k.topic, group: otherLabel} }

// Group counts what one consumer group is sent and what it settles.
type Group struct {
	inst   *instruments
	labels labels
}

func (i *instruments) newGroup(k groupKey) *Group {
	g := &Group{
		inst:   i,
		labels: newLabels(attribute.String("topic", k.topic), attribute.String("group", k.group)),
	}
	// A counter that first appears at 1 hides that event from every rate.
	g.Delivered(0)
	g.Acked(0)
	g.Nacked(0)
	g.Redelivered(0)
	g.DeadLettered(0)
	g.PassedOver(0)
	g.Expired(0)
	return g
}

// Delivered counts events sent to a member, redeliveries included.
func (g *Group) Delivered(n int) {
	g.inst.delivered.Add(context.Background(), int64(n), g.labels.add...)
}

// Acked counts events that a member acked.
func (g *Group) Acked(n int) {
	g.inst.acked.Add(context.Background(), int64(n), g.labels.add...)
}

// Nacked counts events that a member nacked.
func (g *Group) Nacked(n int) {
	g.inst.nacked.Add(context.Background(), int64(n), g.labels.add...)
}

// Redelivered counts events sent with an attempt above 1.
func (g *Group) Redelivered(n int) {
	g.inst.redelivered.Add(context.Background(), int64(n), g.labels.add...)
}

// DeadLettered counts events moved to the dead-letter topic.
func (g *Group) DeadLettered(n int) {
	g.inst.deadLettered.Add(context.Background(), int64(n), g.labels.add...)
}

// PassedOver counts events that retention or compaction removed before the group
// got to them.
func (g *Group) PassedOver(n int) {
	g.inst.passedOver.Add(context.Background(), int64(n), g.labels.add...)
}

// Expired counts events whose own ttl passed before the group was done with them.
func (g *Group) Expired(n int) {
	g.inst.expired.Add(context.Background(), int64(n), g.labels.add...)
}

// Latency counts one event that was acked d after it was accepted.
func (g *Group) Latency(d time.Duration) {
	g.inst.latency.Record(context.Background(), d.Seconds(), g.labels.record...)
}
