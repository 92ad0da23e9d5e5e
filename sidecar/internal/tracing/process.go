package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Outcome is how a delivery ended.
type Outcome string

// The outcomes of deliveries.
const (
	Acked        Outcome = "acked"
	Nacked       Outcome = "nacked"
	Expired      Outcome = "expired"       // the ack's deadline passed
	Disconnected Outcome = "disconnected"  // the connection was closed
	Revoked      Outcome = "revoked"       // given back without counting an attempt
	DeadLettered Outcome = "dead_lettered" // neither Acked nor Revoked, at the last attempt
)

// Process is the span of one delivery of an event to a group; nil if none is recorded. The caller
// makes sure that only one goroutine uses it at a time.
type Process struct {
	t       *Tracing
	span    trace.Span // nil once it has ended
	context trace.SpanContext
	topic   string
	about   []attribute.KeyValue // for settle spans too; a span gets all of them at once
}

// Process begins the span of a delivery, under the context in the event's headers. An event without
// one is not recorded. before is the previous delivery, if it is known.
func (t *Tracing) Process(e *eventlog.Record, group string, attempt int, before *Process) *Process {
	if t == nil {
		return nil
	}
	parent := contextOf(e.Headers)
	if !parent.IsValid() {
		return nil
	}
	if _, yes := t.records(e.Topic, parent); !yes {
		return nil
	}
	p := &Process{t: t, topic: e.Topic, about: []attribute.KeyValue{
		system, semconv.MessagingDestinationName(e.Topic), semconv.MessagingConsumerGroupName(group),
		partitionID(e.Partition), semconv.MessagingMessageID(e.ID), keySeq.Int64(int64(e.Seq)), keyAttempt.Int(attempt),
	}}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	if before != nil {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: before.context}))
	}
	if p.span = t.begin(withState(parent, e.Headers), "process "+e.Topic, opts...); p.span == nil {
		return nil
	}
	p.context = p.span.SpanContext()
	return p
}

// End ends the span; the first call counts. reason is for people.
func (p *Process) End(how Outcome, reason string) {
	if p == nil || p.span == nil {
		return
	}
	attrs := append(make([]attribute.KeyValue, 0, len(p.about)+4), p.about...)
	attrs = append(attrs, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"), keyOutcome.String(string(how)))
	if reason != "" {
		attrs = append(attrs, keyReason.String(reason))
	}
	p.span.SetAttributes(attrs...)
	if how != Acked && how != Revoked {
		failed(p.span, string(how), reason)
	}
	p.span.End()
	p.span, p.about = nil, nil // the other fields are for the next delivery
}

type processKey struct{}

// Within returns a context for the dead letter of the delivered event.
func (p *Process) Within(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, processKey{}, p.context)
}

// Settle is the span of an ack or a nack, from its arrival until it is durable.
type Settle struct{ span trace.Span }

// Settle begins the span of an ack or a nack, given as Acked or Nacked. Call it before End.
func (p *Process) Settle(how Outcome, arrived time.Time) *Settle {
	if p == nil || p.span == nil {
		return nil
	}
	name := "ack"
	if how == Nacked {
		name = "nack"
	}
	span := p.t.begin(p.context, "settle "+p.topic,
		trace.WithTimestamp(arrived), trace.WithSpanKind(trace.SpanKindClient))
	if span == nil {
		return nil
	}
	attrs := append(make([]attribute.KeyValue, 0, len(p.about)+2), p.about...)
	span.SetAttributes(append(attrs, semconv.MessagingOperationTypeSettle, semconv.MessagingOperationName(name))...)
	return &Settle{span}
}

// End ends the span; an error means that the settlement may not be durable.
func (s *Settle) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		failed(s.span, string(wire.StoreUnavailable), "it is not known to be durable")
	}
	s.span.End()
}
