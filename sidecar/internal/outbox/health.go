package outbox

import (
	"log/slog"
	"sync"
)

// health remembers which kinds of the drainer's work fail, and logs when that changes.
type health struct {
	logger *slog.Logger

	mu     sync.Mutex
	faults map[string]string // by kind of work, of the kinds that fail
}

// observe takes the latest outcome of one kind of work.
func (h *health) observe(kind string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, failing := h.faults[kind]
	switch {
	case err != nil && !failing:
		h.logger.Warn("the outbox cannot be drained; trying again", "what", kind, "error", err)
	case err == nil && failing:
		h.logger.Info("the outbox is drained again", "what", kind)
	}
	if err == nil {
		delete(h.faults, kind)
		return
	}
	if h.faults == nil {
		h.faults = map[string]string{}
	}
	h.faults[kind] = err.Error()
}

func (h *health) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for kind, fault := range h.faults {
		return kind + ": " + fault
	}
	return "ok"
}
