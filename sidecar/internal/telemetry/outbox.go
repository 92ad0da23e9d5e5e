package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Outbox counts what becomes of the documents of one outbox.
type Outbox struct {
	inst   *instruments
	name   attribute.KeyValue
	labels labels
}

// Outbox makes the counters of an outbox; its name must not hold secrets.
func (m *Metrics) Outbox(name string) *Outbox {
	label := attribute.String("outbox", name)
	o := &Outbox{inst: m.inst, name: label, labels: newLabels(label)}
	o.Published(0)
	o.placeLost(0)
	return o
}

// Published counts documents whose events are durable.
func (o *Outbox) Published(n int) {
	o.inst.outboxPublished.Add(context.Background(), int64(n), o.labels.add...)
}

// Failed counts one document that was given up.
func (o *Outbox) Failed(code wire.Code) {
	o.inst.outboxFailed.Add(context.Background(), 1, o.with(code).add...)
}

// Deferred counts one refusal of documents that are tried again.
func (o *Outbox) Deferred(code wire.Code) {
	o.inst.outboxDeferred.Add(context.Background(), 1, o.with(code).add...)
}

// PlaceLost counts one change stream that lost its place in the oplog.
func (o *Outbox) PlaceLost() { o.placeLost(1) }

func (o *Outbox) placeLost(n int64) {
	o.inst.outboxPlaceLost.Add(context.Background(), n, o.labels.add...)
}

func (o *Outbox) with(code wire.Code) labels {
	return newLabels(o.name, attribute.String("code", string(code)))
}
