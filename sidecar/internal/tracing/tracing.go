// Package tracing makes the sidecar's spans, with OpenTelemetry's names and attributes, and decides
// which traces are recorded. Other packages use small types of this one, and know nothing of
// OpenTelemetry.
//
// # Spans
//
//	the publisher's span
//	└─ send orders.created              admission, queue, store
//	   ├─ append orders.created         one batch: child of its first send, linked to all
//	   │  ├─ insert events              a command of MongoDB's
//	   │  └─ spool orders.created       where the store is away
//	   ├─ drain orders.created          from the spool into the store, later
//	   └─ process orders.created        one delivery, until its ack
//	      ├─ settle orders.created      from the ack's arrival until it is durable
//	      └─ send orders.created.dlq    where the attempts are used up
//
// The context of send is the stored event's headers.traceparent, so later readers of the event
// continue the trace there: consumers, replays, and the groups of every sidecar on the store.
//
// # What is recorded
//
// The sampler of the environment decides, which by default follows the publisher's own decision,
// and then the topic's policy limits it: tracing.sample_ratio is compared with the trace id, so
// that all sidecars agree without asking each other. A trace that begins here gets its id first,
// and the decision is made before any span: an event that is not recorded costs only the reading of
// its headers.
//
// Every method works on nil, and does nothing then. So nil means that tracing is off, or that an
// event is not recorded.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Config configures Tracing.
type Config struct {
	// Tracer makes the spans that are recorded; nil turns tracing off.
	Tracer trace.Tracer
	// Ratio is tracing.sample_ratio of a topic's policy; nil: 1 for all. It must be quick.
	Ratio func(topic string) float64
	// Propagation says how the requests that Transport sends carry traces.
	Propagation *Propagation
}

// Tracing makes spans. Its methods, and those of its spans, are safe for concurrent use unless they
// say otherwise.
type Tracing struct {
	tracer      trace.Tracer
	sampler     sampler
	ratio       func(topic string) float64
	propagation *Propagation
}

// New makes a Tracing; nil without a Tracer.
func New(c Config) *Tracing {
	if c.Tracer == nil {
		return nil
	}
	if c.Ratio == nil {
		c.Ratio = func(string) float64 { return 1 }
	}
	return &Tracing{tracer: c.Tracer, sampler: learn(c.Tracer), ratio: c.Ratio, propagation: c.Propagation}
}

// records decides whether to record a span of a topic that continues parent, or begins a trace if
// there is no parent. If yes, the span is to be begun under origin: that is parent, or a new
// trace's id without a span.
func (t *Tracing) records(topic string, parent trace.SpanContext) (origin trace.SpanContext, yes bool) {
	ratio := t.ratio(topic)
	if ratio <= 0 {
		return parent, false
	}
	if !parent.IsValid() {
		parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: newTraceID()})
	}
	place := placeOf(parent.TraceID())
	return parent, place < placesOf(ratio) && t.sampler.samples(parent, place)
}

// begin starts a span under origin; nil if the provider does not record it.
func (t *Tracing) begin(origin trace.SpanContext, name string, opts ...trace.SpanStartOption) trace.Span {
	return t.under(trace.ContextWithSpanContext(context.Background(), origin), name, opts...)
}

// under is begin for a context that has a span.
func (t *Tracing) under(ctx context.Context, name string, opts ...trace.SpanStartOption) trace.Span {
	_, span := t.tracer.Start(ctx, name, opts...)
	if !span.IsRecording() {
		return nil
	}
	return span
}

// Attributes of Sluice's own.
const (
	keySeq        = attribute.Key("sluice.seq")
	keyDuplicate  = attribute.Key("sluice.duplicate")
	keyDurability = attribute.Key("sluice.durability")
	keyAttempt    = attribute.Key("sluice.attempt")
	keyOutcome    = attribute.Key("sluice.outcome")
	keyReason     = attribute.Key("sluice.reason")
	keyBytes      = attribute.Key("sluice.batch.bytes")
	keyRefused    = attribute.Key("sluice.batch.refused")
	keyUnlinked   = attribute.Key("sluice.batch.unlinked")
	keyScope      = attribute.Key("sluice.scope")
)

var system = semconv.MessagingSystemKey.String("sluice")

// failed marks a span as failed.
func failed(span trace.Span, kind, text string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, text)
}
