package otlp

import (
	"context"
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

// The exporters read their endpoint and options from the environment themselves. They connect when
// they first export.

func (e *Exports) openTraces(kinds []string, console io.Writer) error {
	exporters, err := open(traces, kinds, map[string]func() (sdktrace.SpanExporter, error){
		kindGRPC:    func() (sdktrace.SpanExporter, error) { return otlptracegrpc.New(e.lasting) },
		kindHTTP:    func() (sdktrace.SpanExporter, error) { return otlptracehttp.New(e.lasting) },
		kindConsole: func() (sdktrace.SpanExporter, error) { return stdouttrace.New(stdouttrace.WithWriter(console)) },
	})
	if len(exporters) == 0 {
		return err
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(e.about)}
	for _, x := range exporters {
		q := &spanQueue{report: e.report}
		q.SpanProcessor = sdktrace.NewBatchSpanProcessor(&spanExporter{x, q, e},
			func(o *sdktrace.BatchSpanProcessorOptions) { q.most = int64(o.MaxQueueSize) })
		opts = append(opts, sdktrace.WithSpanProcessor(q))
	}
	e.tracing = sdktrace.NewTracerProvider(opts...)
	return err
}

func (e *Exports) openMetrics(kinds []string, console io.Writer) error {
	exporters, err := open(metrics, kinds, map[string]func() (sdkmetric.Exporter, error){
		kindGRPC:    func() (sdkmetric.Exporter, error) { return otlpmetricgrpc.New(e.lasting) },
		kindHTTP:    func() (sdkmetric.Exporter, error) { return otlpmetrichttp.New(e.lasting) },
		kindConsole: func() (sdkmetric.Exporter, error) { return stdoutmetric.New(stdoutmetric.WithWriter(console)) },
	})
	for _, x := range exporters {
		e.meters = append(e.meters, &metricExporter{x, e})
	}
	return err
}

func (e *Exports) openLogs(kinds []string, console io.Writer) error {
	exporters, err := open(logs, kinds, map[string]func() (sdklog.Exporter, error){
		kindGRPC:    func() (sdklog.Exporter, error) { return otlploggrpc.New(e.lasting) },
		kindHTTP:    func() (sdklog.Exporter, error) { return otlploghttp.New(e.lasting) },
		kindConsole: func() (sdklog.Exporter, error) { return stdoutlog.New(stdoutlog.WithWriter(console)) },
	})
	if len(exporters) == 0 {
		return err
	}
	opts := []sdklog.LoggerProviderOption{sdklog.WithResource(e.about)}
	for _, x := range exporters {
		opts = append(opts, sdklog.WithProcessor(sdklog.NewBatchProcessor(&logExporter{x, e})))
	}
	e.logging = sdklog.NewLoggerProvider(opts...)
	return err
}

// open opens the exporters of a signal, of these kinds. It also returns those opened before an
// error, so that they can be closed.
func open[T any](signal string, kinds []string, makers map[string]func() (T, error)) (made []T, err error) {
	for _, kind := range kinds {
		x, failed := makers[kind]()
		if failed != nil {
			return made, fmt.Errorf("otlp: exporter of %s: %w", signal, failed)
		}
		made = append(made, x)
	}
	return made, nil
}

// describe returns the resource of the program. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
// override it.
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
