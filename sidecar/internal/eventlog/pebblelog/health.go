package pebblelog

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// health is the store's verdict on itself: sound, or failed for good. After a
// failed write or sync nothing is known about what is on the disk: the kernel
// may have dropped the very pages that it could not write and call the next
// sync of the same file a success. So there is no retrying; only a restart,
// which reads back what is really there, makes the store usable again.
type health struct {
	log   *slog.Logger
	cause atomic.Pointer[error]
}

// fail records the first failure; later ones change nothing.
func (h *health) fail(err error) {
	if h.cause.CompareAndSwap(nil, &err) {
		h.log.Error("the store has failed and answers nothing until a restart", "error", err)
	}
}

// err is nil while the store is sound, and wraps ErrUnavailable afterwards.
func (h *health) err() error {
	cause := h.cause.Load()
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: an earlier write failed, restart to recover: %w", eventlog.ErrUnavailable, *cause)
}

// Infof implements pebble.Logger: Pebble's chatter is for debugging.
func (h *health) Infof(format string, args ...any) {
	h.log.Debug(fmt.Sprintf(format, args...))
}

// Errorf implements pebble.Logger.
func (h *health) Errorf(format string, args ...any) {
	h.log.Warn(fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. Pebble expects that it does not return; it does, so that the
// process can answer its clients, and Pebble may go on as though nothing had happened. Its later
// writes must not reach the disk: see guardedFS.
func (h *health) Fatalf(format string, args ...any) {
	h.fail(fmt.Errorf(format, args...))
}
