package otlp

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"golang.org/x/time/rate"
)

// quiet is the pause between two log lines about a signal.
const quiet = time.Minute

// reporter logs export failures at a bounded rate.
type reporter struct {
	log *slog.Logger

	mu      sync.Mutex
	signals map[string]*trouble
}

// trouble counts the failures of one signal since they were last logged.
type trouble struct {
	sometimes rate.Sometimes
	pending   bool  // there is something to log
	lost      int   // items whose export failed
	dropped   int   // items that found the queue full
	cause     error // of the last failure
}

func newReporter(log *slog.Logger) *reporter {
	return &reporter{log: log, signals: make(map[string]*trouble)}
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

func (r *reporter) note(signal string, count func(*trouble)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.signals[signal]
	if t == nil {
		t = &trouble{sometimes: rate.Sometimes{Interval: quiet}}
		r.signals[signal] = t
	}
	count(t)
	t.pending = true
	t.sometimes.Do(func() { r.tell(signal, t) })
}

// flush logs the counts that were held back.
func (r *reporter) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for signal, t := range r.signals {
		if t.pending {
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
	why := " come faster than they can be sent"
	if t.cause != nil {
		attrs = append(attrs, "error", t.cause)
		why = " cannot be sent"
	}
	r.log.Warn("OpenTelemetry: "+signal+why, attrs...)
	t.pending, t.lost, t.dropped, t.cause = false, 0, 0, nil
}

// sdk is the signal of failures in OpenTelemetry itself.
const sdk = "data"

// install makes the reporter receive the messages that the SDK and the exporters send only to
// process-wide handlers.
func (r *reporter) install() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if !isClosed(err) {
			r.failed(sdk, 0, err)
		}
	}))
	otel.SetLogger(r.sdkLog())
}

// sdkWarning is the level of OpenTelemetry's warnings here: logr's levels grow with detail, and
// warnings have the first.
const sdkWarning = slog.LevelInfo - 1

// sdkLog is the log that OpenTelemetry writes to.
func (r *reporter) sdkLog() logr.Logger {
	return logr.FromSlogHandler(slog.NewTextHandler(r, &slog.HandlerOptions{
		Level: sdkWarning,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{} // the program's own line has them
			}
			return a
		},
	}))
}

// Write takes a line of OpenTelemetry's log.
func (r *reporter) Write(line []byte) (int, error) {
	r.failed(sdk, 0, errors.New(string(bytes.TrimSpace(line))))
	return len(line), nil
}
