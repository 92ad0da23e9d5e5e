package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

type deliverKey struct{}

// Deliver returns a context for the request that brings deliveries to an endpoint. Its span is a child of the first
// delivery that is recorded, and where there are several deliveries it is linked to all of them, since an endpoint that gets a
// batch works on all of its events at once.
func Deliver(ctx context.Context, deliveries []*Process) context.Context {
	to := &links{}
	for _, p := range deliveries {
		if p != nil {
			to.add(p.context)
		}
	}
	if len(to.list) == 0 {
		return ctx
	}
	ctx = trace.ContextWithSpanContext(ctx, to.first())
	return context.WithValue(ctx, deliverKey{}, &batched{to, len(deliveries)})
}

// batched is what a request brings.
type batched struct {
	to     *links
	events int
}

// client begins the span of a request or a call.
func (t *Tracing) client(ctx context.Context, name string, attrs []attribute.KeyValue) trace.Span {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	b, _ := ctx.Value(deliverKey{}).(*batched)
	if b != nil && b.events > 1 {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(b.events))
		opts = append(opts, trace.WithLinks(b.to.list...))
	}
	span := t.under(ctx, name, append(opts, trace.WithAttributes(attrs...))...)
	if span != nil && b != nil {
		b.to.tell(span)
	}
	return span
}

// Call is the span of a call over gRPC that brings deliveries to an application; nil if none is recorded.
type Call struct{ span trace.Span }

// Call begins the span of a call whose context is Deliver's. It calls set for each header that carries the span's context.
func (t *Tracing) Call(ctx context.Context, method string, set func(name, value string)) *Call {
	if t == nil || ctx.Value(deliverKey{}) == nil {
		return nil
	}
	span := t.client(ctx, method, []attribute.KeyValue{semconv.RPCSystemNameGRPC, semconv.RPCMethod(method)})
	if span == nil {
		return nil
	}
	t.propagation.replace(carrier(set), span.SpanContext())
	return &Call{span}
}

// End ends the span with the name of the call's status; failure says that it is no success.
func (c *Call) End(status string, failure bool) {
	if c == nil {
		return
	}
	c.span.SetAttributes(semconv.RPCResponseStatusCode(status))
	if failure {
		failed(c.span, status, "")
	}
	c.span.End()
}
