package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutlog"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The exporters read their endpoint and options from the environment
// themselves. They connect when they first export.

func (e *Exports) openTraces(ctx context.Context, asked request, console io.Writer) error {
	exporters, err := open(traces, asked, makers[sdktrace.SpanExporter]{
		grpc:    func() (sdktrace.SpanExporter, error) { return otlptracegrpc.New(ctx) },
		http:    func() (sdktrace.SpanExporter, error) { return otlptracehttp.New(ctx) },
		console: func() (sdktrace.SpanExporter, error) { return stdouttrace.New(stdouttrace.WithWriter(console)) },
	})
	if len(exporters) == 0 {
		return err
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(e.about)}
	for _, x := range exporters {
		q := &spanQueue{report: e.report}
		q.SpanProcessor = sdktrace.NewBatchSpanProcessor(&spanExporter{x, q, e.link(ctx, "traces")},
			func(o *sdktrace.BatchSpanProcessorOptions) { q.most = int64(o.MaxQueueSize) })
		opts = append(opts, sdktrace.WithSpanProcessor(q))
	}
	e.tracing = sdktrace.NewTracerProvider(opts...)
	return err
}

func (e *Exports) openMetrics(ctx context.Context, asked request, console io.Writer) error {
	exporters, err := open(metrics, asked, makers[sdkmetric.Exporter]{
		grpc:    func() (sdkmetric.Exporter, error) { return otlpmetricgrpc.New(ctx) },
		http:    func() (sdkmetric.Exporter, error) { return otlpmetrichttp.New(ctx) },
		console: func() (sdkmetric.Exporter, error) { return stdoutmetric.New(stdoutmetric.WithWriter(console)) },
	})
	for _, x := range exporters {
		e.readers = append(e.readers, sdkmetric.NewPeriodicReader(&metricExporter{x, e.link(ctx, "metrics")}))
	}
	return err
}

func (e *Exports) openLogs(ctx context.Context, asked request, console io.Writer) error {
	exporters, err := open(logs, asked, makers[sdklog.Exporter]{
		grpc:    func() (sdklog.Exporter, error) { return otlploggrpc.New(ctx) },
		http:    func() (sdklog.Exporter, error) { return otlploghttp.New(ctx) },
		console: func() (sdklog.Exporter, error) { return stdoutlog.New(stdoutlog.WithWriter(console)) },
	})
	if len(exporters) == 0 {
		return err
	}
	opts := []sdklog.LoggerProviderOption{sdklog.WithResource(e.about)}
	for _, x := range exporters {
		opts = append(opts, sdklog.WithProcessor(sdklog.NewBatchProcessor(&logExporter{x, e.link(ctx, "logs")})))
	}
	e.logging = sdklog.NewLoggerProvider(opts...)
	return err
}

// makers make the exporters of one signal.
type makers[T any] struct{ grpc, http, console func() (T, error) }

// open opens the enabled exporters. It also returns those opened before an
// error, so that they can be closed.
func open[T any](signal string, asked request, m makers[T]) (made []T, err error) {
	var errs []error
	for _, one := range []struct {
		wanted bool
		make   func() (T, error)
	}{{asked.otlp && asked.grpc, m.grpc}, {asked.otlp && !asked.grpc, m.http}, {asked.console, m.console}} {
		if !one.wanted {
			continue
		}
		if x, err := one.make(); err != nil {
			errs = append(errs, fmt.Errorf("otlp: exporter of %s: %w", signal, err))
		} else {
			made = append(made, x)
		}
	}
	return made, errors.Join(errs...)
}

// describe returns the resource of the program. OTEL_RESOURCE_ATTRIBUTES and
// OTEL_SERVICE_NAME override it.
func describe(ctx context.Context, cfg Config) *resource.Resource {
	// A failed detector leaves out its part, and is logged below.
	about, err := resource.New(ctx,
		resource.WithAttributes(
			semconv.ServiceName(cfg.Service),
			semconv.ServiceVersion(cfg.Version),
			semconv.ServiceInstanceID(cfg.Instance),
		),
		resource.WithHost(),
		resource.WithProcessPID(),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv(),
	)
	if err != nil {
		cfg.Log.Warn("OpenTelemetry: the resource attributes are incomplete", "error", err)
	}
	return about
}
