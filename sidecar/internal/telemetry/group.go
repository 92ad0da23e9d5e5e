package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// groupKey has the labels of one group; its topic is folded already.
type groupKey struct{ topic, group string }

func (k groupKey) other() groupKey { return groupKey{topic: k.topic, group: otherLabel} }

// Group counts the deliveries to one consumer group, and its acks and nacks.
type Group struct {
	inst   *instruments
	labels labels

	Delivered    func(n int) // events sent to a member, redeliveries included
	Acked        func(n int) // events that a member acked
	Nacked       func(n int) // events that a member nacked
	Redelivered  func(n int) // events sent with an attempt above 1
	DeadLettered func(n int) // events moved to the dead-letter topic
	PassedOver   func(n int) // events that were removed before the group read them
	Expired      func(n int) // events whose own ttl passed before the group settled them
}

func (i *instruments) newGroup(k groupKey) *Group {
	l := newLabels(attribute.String("topic", k.topic), attribute.String("group", k.group))
	return &Group{
		inst: i, labels: l,
		Delivered: l.counter(i.delivered), Acked: l.counter(i.acked), Nacked: l.counter(i.nacked),
		Redelivered: l.counter(i.redelivered), DeadLettered: l.counter(i.deadLettered),
		PassedOver: l.counter(i.passedOver), Expired: l.counter(i.expired),
	}
}

// Latency counts one event that was acked d after it was accepted.
func (g *Group) Latency(d time.Duration) {
	g.inst.latency.Record(context.Background(), d.Seconds(), g.labels.record...)
}
