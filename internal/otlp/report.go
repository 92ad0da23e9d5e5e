package otlp

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// quiet is the pause between two log lines about a signal.
const quiet = time.Minute

// reporter logs export failures at a bounded rate.
type reporter struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	signals map[string]*trouble
}

// trouble counts the failures of one signal since it was last logged.
type trouble struct {
	told    time.Time
	untold  bool
	lost    int   // sent in vain
	dropped int   // without room to wait in
	cause   error // of the last failure
}

func newReporter(log *slog.Logger) *reporter {
	return &reporter{log: log, now: time.Now, signals: make(map[string]*trouble)}
}

// failed counts a failure that lost n items of a signal.
func (r *reporter) failed(signal string, n int, cause error) {
	r.note(signal, func(t *trouble) {
		t.lost += n
		t.cause = cause
	})
}

// dropped counts an item that exceeded the queue's bound.
func (r *reporter) dropped(signal string) {
	r.note(signal, func(t *trouble) { t.dropped++ })
}

func (r *reporter) note(signal string, what func(*trouble)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.signals[signal]
	if t == nil {
		t = &trouble{}
		r.signals[signal] = t
	}
	what(t)
	t.untold = true
	if now := r.now(); t.told.IsZero() || now.Sub(t.told) >= quiet {
		t.told = now
		r.tell(signal, t)
	}
}

// flush logs the counts that were held back.
func (r *reporter) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for signal, t := range r.signals {
		if t.untold {
			r.tell(signal, t)
		}
	}
}

// tell runs with mu held, so that lines are in the order of the failures.
func (r *reporter) tell(signal string, t *trouble) {
	var attrs []any
	if t.lost > 0 {
		attrs = append(attrs, "lost", t.lost)
	}
	if t.dropped > 0 {
		attrs = append(attrs, "dropped", t.dropped)
	}
	if t.cause != nil {
		attrs = append(attrs, "error", t.cause)
		r.log.Warn("OpenTelemetry: "+signal+" cannot be sent", attrs...)
	} else {
		r.log.Warn("OpenTelemetry: "+signal+" come faster than they can be sent", attrs...)
	}
	*t = trouble{told: t.told}
}

// machinery is the signal of failures in OpenTelemetry itself.
const machinery = "data"

// install makes the reporter receive the messages that the SDK and the
// exporters send only to process-wide handlers.
func (r *reporter) install() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if !isClosed(err) {
			r.failed(machinery, 0, err)
		}
	}))
	otel.SetLogger(logr.FromSlogHandler(&inner{report: r}))
}

// inner receives OpenTelemetry's own log.
type inner struct {
	report *reporter
	attrs  []slog.Attr
}

// innerWarning is the level of OpenTelemetry's warnings here: logr's levels
// grow with detail, and warnings have the first.
const innerWarning = slog.LevelInfo - 1

func (h *inner) Enabled(_ context.Context, level slog.Level) bool { return level >= innerWarning }

func (h *inner) Handle(_ context.Context, record slog.Record) error {
	text := record.Message
	add := func(a slog.Attr) bool {
		text += ", " + a.String()
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	record.Attrs(add)
	h.report.failed(machinery, 0, innerError(text))
	return nil
}

func (h *inner) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &inner{report: h.report, attrs: append(slices.Clip(h.attrs), attrs...)}
}

func (h *inner) WithGroup(string) slog.Handler { return h }

type innerError string

func (e innerError) Error() string { return string(e) }
