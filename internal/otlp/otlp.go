// Package otlp exports a program's traces, metrics and logs over OpenTelemetry's own protocol, as
// the standard OTEL_… environment variables say.
//
// Exports never block the work that is traced: data waits in bounded queues, and data beyond the
// bound is dropped and counted in the log.
package otlp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/propagation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is this module's name in exported data.
const scope = "github.com/sluice-bus/sluice"

// Config describes the exporting program.
type Config struct {
	// Service is the program's name, which OTEL_SERVICE_NAME overrides; Version is the program's,
	// and Instance distinguishes it from others of its name.
	Service, Version, Instance string
	// Log receives export failures, at most once a minute for each signal. Its lines are not
	// exported.
	Log *slog.Logger
	// Console is the output of the console exporter; nil: standard error.
	Console io.Writer
}

// Exports receives a program's traces, metrics and logs. A signal that the environment does not
// enable is off: it has no goroutine, and its method returns nil. A nil *Exports has all of them
// off.
type Exports struct {
	about   *resource.Resource
	formats propagation.TextMapPropagator
	tracing *sdktrace.TracerProvider // nil: off, as are the others
	logging *sdklog.LoggerProvider
	meters  []sdkmetric.Exporter
	readers []sdkmetric.Reader // of the meters, once they are made

	report  *reporter
	lasting context.Context    // of all exports
	abandon context.CancelFunc // ends it, and so the exports under way
	once    sync.Once
}

// Open opens the exporters that the environment enables. If it enables none, or has
// OTEL_SDK_DISABLED=true, everything is off. A variable that cannot be used is named in the log and taken out of the process's environment.
// The caller must call Shutdown.
//
// Errors of OpenTelemetry's own process-wide handlers go to the Log of the last call.
func Open(ctx context.Context, cfg Config) (*Exports, error) {
	env := environment(func(name string) string { return strings.TrimSpace(os.Getenv(name)) })
	formats, left := env.propagators() // also where everything else is off, as the specification has it
	var asked map[string][]string
	if !env.disabled() {
		var more []unusable
		asked, more = env.read()
		left = append(left, more...)
	}
	for _, u := range left {
		cfg.Log.Warn("a variable of OpenTelemetry cannot be used here, and is taken as unset", "variable", u.name, "error", u.err)
		if err := os.Unsetenv(u.name); err != nil { // the exporters and the SDK read the environment, too
			return nil, err
		}
	}
	if len(asked) == 0 {
		return &Exports{formats: formats}, nil
	}
	if cfg.Console == nil {
		cfg.Console = os.Stderr
	}
	e := &Exports{formats: formats, about: describe(ctx, cfg), report: newReporter(cfg.Log)}
	e.report.install()
	// Exports outlive ctx, so that the program's last data is exported when it is over.
	e.lasting, e.abandon = context.WithCancel(context.WithoutCancel(ctx))
	err := errors.Join(
		e.openTraces(asked[traces], cfg.Console),
		e.openMetrics(asked[metrics], cfg.Console),
		e.openLogs(asked[logs], cfg.Console),
	)
	if err != nil {
		e.abandon()
		return nil, errors.Join(err, e.Shutdown(e.lasting))
	}
	return e, nil
}

// Tracer makes spans; it is nil if traces are off. Its sampler is that of OTEL_TRACES_SAMPLER: by
// default the parent's decision, and every root.
func (e *Exports) Tracer() trace.Tracer {
	if e == nil || e.tracing == nil {
		return nil
	}
	return e.tracing.Tracer(scope)
}

// Propagators are the formats of OTEL_PROPAGATORS, in which requests carry the contexts of traces; nil: W3C's, the default.
func (e *Exports) Propagators() propagation.TextMapPropagator {
	if e == nil {
		return nil
	}
	return e.formats
}

// MetricReaders makes the readers for the program's single MeterProvider, which closes them; nil if
// metrics are off. Each also gets what a producer has: producer makes one for the temporality in
// which histograms are sent. nil: there is none. It is called once.
func (e *Exports) MetricReaders(producer func(metricdata.Temporality) sdkmetric.Producer) []sdkmetric.Reader {
	if e == nil {
		return nil
	}
	for _, x := range e.meters {
		var opts []sdkmetric.PeriodicReaderOption
		if producer != nil {
			opts = append(opts, sdkmetric.WithProducer(producer(x.Temporality(sdkmetric.InstrumentKindHistogram))))
		}
		e.readers = append(e.readers, sdkmetric.NewPeriodicReader(x, opts...))
	}
	return e.readers
}

// Resource describes the program in exported data; nil if everything is off.
func (e *Exports) Resource() *resource.Resource {
	if e == nil {
		return nil
	}
	return e.about
}

// Logger logs to base and exports the records that base would log; it is base if logs are off.
// Records logged with a context that has a span carry its ids.
func (e *Exports) Logger(base *slog.Logger) *slog.Logger {
	if e == nil || e.logging == nil {
		return base
	}
	h := otelslog.NewHandler(scope, otelslog.WithLoggerProvider(e.logging))
	return slog.New(slog.NewMultiHandler(base.Handler(), levelled{Handler: h, base: base.Handler()}))
}

// levelled exports records of the levels that another handler logs, so that --log-level applies to
// both.
type levelled struct {
	slog.Handler
	base slog.Handler
}

func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return l.base.Enabled(ctx, level) && l.Handler.Enabled(ctx, level)
}

func (l levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelled{l.Handler.WithAttrs(attrs), l.base}
}

func (l levelled) WithGroup(name string) slog.Handler {
	return levelled{l.Handler.WithGroup(name), l.base}
}

// Shutdown exports the waiting data, and closes everything. If ctx ends first, it drops the rest,
// and says so. Later calls do nothing.
func (e *Exports) Shutdown(ctx context.Context) (err error) {
	if e == nil || e.report == nil {
		return nil
	}
	e.once.Do(func() { err = e.shutdown(ctx) })
	return err
}

func (e *Exports) shutdown(ctx context.Context) error {
	defer e.abandon()
	// Shutdown waits for the providers even after ctx: they end soon after their exports, which end
	// with ctx.
	defer context.AfterFunc(ctx, e.abandon)()
	var errs []error
	lasting := context.WithoutCancel(ctx)
	for _, r := range e.readers {
		if err := r.Shutdown(lasting); !isClosed(err) {
			errs = append(errs, err)
		}
	}
	for _, x := range e.meters[len(e.readers):] { // the program never came to measure
		errs = append(errs, x.Shutdown(lasting))
	}
	if e.tracing != nil {
		errs = append(errs, e.tracing.Shutdown(lasting))
	}
	if e.logging != nil {
		errs = append(errs, e.logging.Shutdown(lasting))
	}
	e.report.flush()
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// closing bounds the time of Close.
const closing = 5 * time.Second

// Close is Shutdown at a program's end: with a deadline, and with errors in the log.
func (e *Exports) Close() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closing, errGivenUp)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		e.report.log.Warn("OpenTelemetry: not everything was sent", "error", err)
	}
}

var errGivenUp = errors.New("it took too long")

// isClosed recognises the error of a reader whose MeterProvider is closed, or that never had one.
func isClosed(err error) bool {
	return err == nil || errors.Is(err, sdkmetric.ErrReaderShutdown) || errors.Is(err, sdkmetric.ErrReaderNotRegistered)
}
