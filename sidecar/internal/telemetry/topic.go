package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Topic counts the publishes to one topic.
type Topic struct {
	inst   *instruments
	label  string
	labels labels

	Published func(n int) // events that were accepted and are new
	Duplicate func(n int) // events that the log already held

	byCode sync.Map // labels of refusals, as they occur
}

func (i *instruments) newTopic(label string) *Topic {
	l := newLabels(attribute.String("topic", label))
	return &Topic{
		inst: i, label: label, labels: l,
		Published: l.counter(i.published), Duplicate: l.counter(i.duplicate),
	}
}

// Rejected counts events that were refused with the code.
func (t *Topic) Rejected(code wire.Code, n int) {
	l, ok := t.byCode.Load(code)
	if !ok {
		l, _ = t.byCode.LoadOrStore(code, newLabels(attribute.String("topic", t.label), attribute.String("code", string(code))))
	}
	t.inst.rejected.Add(context.Background(), int64(n), l.(labels).add...)
}

// Late counts a scheduled event that came into the log d after it was due.
func (t *Topic) Late(d time.Duration) {
	t.inst.lateness.Record(context.Background(), d.Seconds(), t.labels.record...)
}

// PublishDuration counts one publish request that was answered after d.
func (t *Topic) PublishDuration(d time.Duration) {
	t.inst.publishDuration.Record(context.Background(), d.Seconds(), t.labels.record...)
}
