package tracing

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Send is the span of one publish; nil if none is recorded. Its methods are called one after the
// other.
type Send struct {
	span  trace.Span
	topic string
	root  bool // it begins the trace
}

// Send begins the span of a published event: at began, under the context in its headers.
func (t *Tracing) Send(ctx context.Context, e *wire.Event, began time.Time) *Send {
	if t == nil {
		return nil
	}
	parent := contextOf(e.Headers)
	s := t.send(e, parent, began)
	if s != nil {
		ofOutbox(ctx).add(parent, s.span.SpanContext())
	}
	return s
}

// SendDeadLetter is Send for a dead letter, under the last delivery of its event if ctx has that
// (Process.Within).
func (t *Tracing) SendDeadLetter(ctx context.Context, e *wire.Event) *Send {
	if t == nil {
		return nil
	}
	parent, ok := ctx.Value(processKey{}).(trace.SpanContext)
	if !ok {
		parent = contextOf(e.Headers)
	}
	return t.send(e, parent, time.Now())
}

func (t *Tracing) send(e *wire.Event, parent trace.SpanContext, began time.Time) *Send {
	origin, yes := t.records(e.Topic, parent)
	if !yes {
		return nil
	}
	span := t.begin(withState(origin, e.Headers), "send "+e.Topic, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindProducer))
	if span == nil {
		return nil
	}
	return &Send{span: span, topic: e.Topic, root: !parent.IsValid()}
}

// Headers returns the event's headers with the span's context in place of the publisher's, and does
// not change the given ones.
func (s *Send) Headers(h wire.Headers) wire.Headers {
	if s == nil {
		return h
	}
	return withContext(h, s.span.SpanContext(), s.root)
}

// Accepted ends the span of an event that is durable.
func (s *Send) Accepted(id string, out eventlog.Outcome) {
	if s == nil {
		return
	}
	attrs := append(s.about(id), keyDurability.String(durability(out)))
	if !out.Spooled && out.DeliverAt == 0 {
		attrs = append(attrs, partitionID(out.Partition), keySeq.Int64(int64(out.Seq)))
	}
	if out.Duplicate {
		attrs = append(attrs, keyDuplicate.Bool(true))
	}
	s.span.SetAttributes(attrs...)
	s.span.End()
}

// Refused ends the span of an event that is not stored, as far as is known. id may be "".
func (s *Send) Refused(id string, err *wire.Error) {
	if s == nil {
		return
	}
	s.span.SetAttributes(s.about(id)...)
	failed(s.span, string(err.Code), err.Msg)
	s.span.End()
}

// about returns the attributes that every such span has. A span gets them at its end, all at once,
// since each call costs time.
func (s *Send) about(id string) []attribute.KeyValue {
	const most = 9
	attrs := append(make([]attribute.KeyValue, 0, most),
		system, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"), semconv.MessagingDestinationName(s.topic))
	if id != "" {
		attrs = append(attrs, semconv.MessagingMessageID(id))
	}
	return attrs
}

// Failed is Refused with a reason that only the log gets.
func (s *Send) Failed(id string) {
	s.Refused(id, &wire.Error{Code: wire.StoreUnavailable, Msg: "the log did not answer"})
}

func durability(out eventlog.Outcome) string {
	if out.Spooled {
		return "spool"
	}
	return "store"
}

func partitionID(p int) attribute.KeyValue {
	return semconv.MessagingDestinationPartitionID(strconv.Itoa(p))
}
