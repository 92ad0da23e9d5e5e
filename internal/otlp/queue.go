package otlp

import (
	"context"
	"errors"
	"sync/atomic"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// spanQueue queues ended spans for their exporter. It counts waiting spans, so that drops can be
// logged: the SDK's queue, which has the same bound, would drop them silently. The queue of log
// records reports drops itself.
type spanQueue struct {
	sdktrace.SpanProcessor
	most    int64
	waiting atomic.Int64
	report  *reporter
}

func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	switch {
	case !s.SpanContext().IsSampled(): // it would not be sent
	case q.waiting.Add(1) > q.most:
		q.waiting.Add(-1)
		q.report.dropped(traces)
	default:
		q.SpanProcessor.OnEnd(s)
	}
}

// send calls f, which sends n items, under a context that also ends when exports are given up. It
// reports the error and does not return it, since callers could do no more. A failed export of
// metrics loses nothing: the next one has the totals again.
func (e *Exports) send(ctx context.Context, signal string, n int, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.lasting, cancel)()
	if err := f(ctx); err != nil {
		e.report.failed(signal, n, err)
	}
}

// The exporters at the ends of the queues handle failures.

type spanExporter struct {
	sdktrace.SpanExporter
	queue *spanQueue
	of    *Exports
}

func (x *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	x.of.send(ctx, traces, len(spans), func(ctx context.Context) error { return x.SpanExporter.ExportSpans(ctx, spans) })
	x.queue.waiting.Add(-int64(len(spans)))
	return nil
}

type logExporter struct {
	sdklog.Exporter
	of *Exports
}

func (x *logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	x.of.send(ctx, logs, len(records), func(ctx context.Context) error { return x.Exporter.Export(ctx, records) })
	return nil
}

type metricExporter struct {
	sdkmetric.Exporter
	of *Exports
}

func (x *metricExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	x.of.send(ctx, metrics, 0, func(sending context.Context) error {
		err := x.Exporter.Export(sending, data)
		if errors.Is(ctx.Err(), context.Canceled) && x.of.lasting.Err() == nil {
			return nil // the reader ends, and its last export has the totals
		}
		return err
	})
	return nil
}
