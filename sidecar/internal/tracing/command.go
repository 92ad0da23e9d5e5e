package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/internal/mongowatch"
)

// Commands makes spans of commands to a MongoDB server, below the spans in the commands' contexts;
// nil if tracing is off.
func (t *Tracing) Commands() func(context.Context, mongowatch.Command) func(failure string) {
	if t == nil {
		return nil
	}
	return t.command
}

func (t *Tracing) command(ctx context.Context, c mongowatch.Command) func(failure string) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	name := c.Name
	attrs := append(make([]attribute.KeyValue, 0, 6),
		semconv.DBSystemNameMongoDB, semconv.DBOperationName(c.Name), semconv.DBNamespace(c.Database), semconv.ServerAddress(c.Host))
	if c.Collection != "" {
		name += " " + c.Collection
		attrs = append(attrs, semconv.DBCollectionName(c.Collection))
	}
	if c.Port != 0 {
		attrs = append(attrs, semconv.ServerPort(c.Port))
	}
	span := t.under(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	if span == nil {
		return nil
	}
	return func(failure string) {
		if failure != "" {
			failed(span, failure, "")
		}
		span.End()
	}
}
