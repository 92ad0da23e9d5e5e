// Package otlp sends a program's traces, metrics and logs to where the standard
// OTEL_… environment variables say, over OpenTelemetry's own protocol. It must
// not know what any program traces, counts or logs.
//
// Nothing here ever holds up the work that is traced: what is to be sent waits
// in queues with a bound, and what finds no room there is dropped and counted
// in the log.
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
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/internal/setting"
)

// scope names this module in what is sent.
const scope = "github.com/sluice-bus/sluice"

// Config says who sends.
type Config struct {
	// Service is the program's name, for which OTEL_SERVICE_NAME wins; Version
	// is the program's, and Instance tells it from others of its name.
	Service, Version, Instance string
	// Log gets what goes wrong in sending, at most once a minute for each
	// signal. What it says is not itself sent.
	Log *slog.Logger
	// Console is where the exporter of that name writes; nil: standard error.
	Console io.Writer
}

// Exports are what a program hands its traces, metrics and logs to. Those that
// the environment asks nothing of are off: they have no goroutine, and their
// method returns nil. A nil *Exports has all of them off.
type Exports struct {
	about   *resource.Resource
	tracing *sdktrace.TracerProvider // nil: off, as are the others
	logging *sdklog.LoggerProvider
	readers []sdkmetric.Reader

	report  *reporter
	abandon context.CancelFunc // ends exports under way
	once    sync.Once
}

// Open makes what the environment asks for. Where it asks for nothing, or says
// OTEL_SDK_DISABLED=true, everything is off. A variable that is wrong is a
// *setting.Error that names it. Shutdown has to follow.
//
// Errors of OpenTelemetry's own machinery, of which a process has one, go to
// the Log of the last call.
func Open(ctx context.Context, cfg Config) (*Exports, error) {
	env := environment(func(name string) string { return strings.TrimSpace(os.Getenv(name)) })
	if env.disabled() {
		return &Exports{}, nil
	}
	asked, err := env.read()
	if err != nil {
		return nil, &setting.Error{Err: err}
	}
	if len(asked) == 0 {
		return &Exports{}, nil
	}
	if cfg.Console == nil {
		cfg.Console = os.Stderr
	}
	e := &Exports{about: describe(ctx, cfg), report: newReporter(cfg.Log)}
	e.report.install()
	// Exports outlive ctx, as the program's last words are sent when it is over.
	lasting, abandon := context.WithCancel(context.WithoutCancel(ctx))
	e.abandon = abandon
	err = errors.Join(
		e.openTraces(lasting, asked[traces], cfg.Console),
		e.openMetrics(lasting, asked[metrics], cfg.Console),
		e.openLogs(lasting, asked[logs], cfg.Console),
	)
	if err != nil {
		abandon()
		return nil, errors.Join(err, e.Shutdown(lasting))
	}
	return e, nil
}

// Tracer makes spans, or is nil where traces are off. Its sampler is that of
// OTEL_TRACES_SAMPLER: by default, what the parent was, and every root.
func (e *Exports) Tracer() trace.Tracer {
	if e == nil || e.tracing == nil {
		return nil
	}
	return e.tracing.Tracer(scope)
}

// MetricReaders are for the one MeterProvider of the program, which closes
// them; nil where metrics are off.
func (e *Exports) MetricReaders() []sdkmetric.Reader {
	if e == nil {
		return nil
	}
	return e.readers
}

// Resource describes the program to those that get what is sent; nil where
// everything is off.
func (e *Exports) Resource() *resource.Resource {
	if e == nil {
		return nil
	}
	return e.about
}

// LogHandler sends log records, of whatever level; nil where logs are off.
// Records logged with a context that has a span carry its ids.
func (e *Exports) LogHandler() slog.Handler {
	if e == nil || e.logging == nil {
		return nil
	}
	return otelslog.NewHandler(scope, otelslog.WithLoggerProvider(e.logging))
}

// Logger logs to base and sends what base would log; it is base where logs are
// off.
func (e *Exports) Logger(base *slog.Logger) *slog.Logger {
	h := e.LogHandler()
	if h == nil {
		return base
	}
	return slog.New(slog.NewMultiHandler(base.Handler(), levelled{Handler: h, as: base.Handler()}))
}

// Shutdown sends what waits to be sent, and closes everything. When ctx ends
// first, it gives up what is under way and what still waits, and says so. Later
// calls do nothing.
func (e *Exports) Shutdown(ctx context.Context) (err error) {
	if e == nil || e.report == nil {
		return nil
	}
	e.once.Do(func() { err = e.shutdown(ctx) })
	return err
}

func (e *Exports) shutdown(ctx context.Context) error {
	defer e.abandon()
	// The providers are waited for, whatever ctx says: they end soon after
	// their exports do, and those end with ctx.
	defer context.AfterFunc(ctx, e.abandon)()
	var errs []error
	lasting := context.WithoutCancel(ctx)
	for _, r := range e.readers {
		if err := r.Shutdown(lasting); !isClosed(err) {
			errs = append(errs, err)
		}
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

// closing is how long Close may take.
const closing = 5 * time.Second

// Close is Shutdown for a program's end: under a deadline, and with what went
// wrong in the log.
func (e *Exports) Close() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closing, errGivenUp)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		e.report.log.Warn("OpenTelemetry: not everything was sent", "error", err)
	}
}

var errGivenUp = errors.New("it took too long")

// isClosed tells what a reader says that the program's MeterProvider has closed,
// or that never got one.
func isClosed(err error) bool {
	return err == nil || errors.Is(err, sdkmetric.ErrReaderShutdown) || errors.Is(err, sdkmetric.ErrReaderNotRegistered)
}
