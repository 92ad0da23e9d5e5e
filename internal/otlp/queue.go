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

// room counts what waits to be sent, so that what finds none can be told of:
// the queue of the SDK, which has the same bound, would drop it unseen.
type room struct {
	most    int64
	waiting atomic.Int64
}

func newRoom(most int) *room { return &room{most: int64(most)} }

// take reports whether there was room for one more.
func (r *room) take() bool {
	if r.waiting.Add(1) > r.most {
		r.waiting.Add(-1)
		return false
	}
	return true
}

func (r *room) give(n int) { r.waiting.Add(-int64(n)) }

// spanQueue is the way of ended spans to their exporter.
type spanQueue struct {
	sdktrace.SpanProcessor
	room   *room
	report *reporter
}

func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return // it would not be sent
	}
	if !q.room.take() {
		q.report.dropped("traces")
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// logQueue is the way of log records to their exporter.
type logQueue struct {
	sdklog.Processor
	room   *room
	report *reporter
}

func (q *logQueue) OnEmit(ctx context.Context, r *sdklog.Record) error {
	if !q.room.take() {
		q.report.dropped("logs")
		return nil
	}
	return q.Processor.OnEmit(ctx, r)
}

// link is the end of every way: what is sent, and what becomes of it.
type link struct {
	signal  string
	report  *reporter
	lasting context.Context // over once what is under way is given up
}

func (e *Exports) link(lasting context.Context, signal string) link {
	return link{signal: signal, report: e.report, lasting: lasting}
}

// send calls f, which sends n items, under a context that ends when exports are
// given up, too. Its error ends here: nobody up the way could do more than tell of it. Of metrics
// nothing is lost by it: the next export has the totals again.
func (l link) send(ctx context.Context, n int, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.lasting, cancel)()
	if err := f(ctx); err != nil {
		l.report.failed(l.signal, n, err)
	}
}

type spanExporter struct {
	sdktrace.SpanExporter
	room *room
	link link
}

func (x *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	x.link.send(ctx, len(spans), func(ctx context.Context) error { return x.SpanExporter.ExportSpans(ctx, spans) })
	x.room.give(len(spans))
	return nil
}

type logExporter struct {
	sdklog.Exporter
	room *room
	link link
}

func (x *logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	x.link.send(ctx, len(records), func(ctx context.Context) error { return x.Exporter.Export(ctx, records) })
	x.room.give(len(records))
	return nil
}

type metricExporter struct {
	sdkmetric.Exporter
	link link
}

func (x *metricExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	x.link.send(ctx, 0, func(sending context.Context) error {
		err := x.Exporter.Export(sending, data)
		if errors.Is(ctx.Err(), context.Canceled) && x.link.lasting.Err() == nil {
			return nil // the reader ends, and its last export has the totals
		}
		return err
	})
	return nil
}
