package pebblelog

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// health is the state of the store: sound, or failed until a restart. After a failed write or sync
// the content of the disk is not known: the kernel may have dropped the pages that it could not
// write, and report success for the next sync of the same file. So a retry is not safe. Only a
// restart, which reads the disk again, makes the store usable.
type health struct {
	log   *slog.Logger
	cause atomic.Pointer[failure]
}

// failure is why the store failed, and when.
type failure struct {
	error
	at time.Time
}

// fail records the first failure; later ones change nothing.
func (h *health) fail(err error) {
	if h.cause.CompareAndSwap(nil, &failure{err, time.Now()}) {
		h.log.Error("the store has failed and answers nothing until a restart", "error", err)
	}
}

// err is nil while the store is sound, and wraps ErrFailed afterwards.
func (h *health) err() error {
	cause := h.cause.Load()
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", eventlog.ErrFailed, cause.error)
}

// Infof implements pebble.Logger.
func (h *health) Infof(format string, args ...any) {
	h.log.Debug(fmt.Sprintf(format, args...))
}

// Errorf implements pebble.Logger.
func (h *health) Errorf(format string, args ...any) {
	h.log.Warn(fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. Pebble expects that it does not return. It does return, so that
// the process can answer its clients, and Pebble may continue as if nothing had happened. guardedFS
// keeps its later writes off the disk.
func (h *health) Fatalf(format string, args ...any) {
	h.fail(fmt.Errorf(format, args...))
}
