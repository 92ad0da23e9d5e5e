package capture

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// States of a capture in Stats, beside errors.
const (
	stateCapturing = "ok"
	stateWaiting   = "not capturing: another sidecar does, or the store is away"
)

// health remembers the state of a capture, and logs when it changes.
type health struct {
	logger *slog.Logger

	mu      sync.Mutex
	state   string
	active  bool
	stopped bool
	refused string    // the last refusal of the log; "": it accepts changes
	until   time.Time // everything before it was captured, about; zero: not known here
}

// waits notes that this sidecar does not capture: another one does, or the store is away.
func (h *health) waits() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.active, h.stopped, h.until = stateWaiting, false, false, time.Time{}
}

// captures notes that this sidecar captures.
func (h *health) captures() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != stateCapturing {
		h.logger.Info("the collection is captured")
	}
	h.state, h.refused, h.active, h.stopped = stateCapturing, "", true, false
}

// reached notes that everything before a time is in the log.
func (h *health) reached(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = at
}

// fails notes the error that ended a session. The lag of a capture that has never followed its
// stream counts from then on.
func (h *health) fails(err error, now time.Time) {
	if errors.Is(err, errTaken) || errors.Is(err, errNotMine) {
		return // the next look notes that this sidecar does not capture
	}
	_, stopped := errors.AsType[*stoppedError](err)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case stopped && !h.stopped:
		h.logger.Error("the capture has stopped", "error", err)
	case !stopped && (h.state == stateCapturing || h.state == stateWaiting || h.state == ""):
		h.logger.Warn("the collection cannot be captured; trying again", "error", err)
	}
	h.state, h.active, h.stopped = err.Error(), true, stopped
	if h.until.IsZero() {
		h.until = now
	}
}

// defers notes a refusal of the log that passes.
func (h *health) defers(err *wire.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = err.Error()
}

// Stats are shown in GET /v1/status.
type Stats struct {
	Capture string `json:"capture"` // database.collection
	Topic   string `json:"topic"`
	State   string `json:"state"`  // "ok", that this sidecar does not capture, or the fault
	Active  bool   `json:"active"` // this sidecar captures, or tries to
	// Stopped says that the capture needs an operator: its place is lost, or the collection was
	// dropped.
	Stopped bool `json:"stopped"`
	// Lag is how long ago everything was captured, in seconds; null where this sidecar does not
	// capture.
	Lag       *float64 `json:"lag_seconds"`
	Published int64    `json:"published"` // since the start
	Failed    int64    `json:"failed"`    // since the start
}

// Stats may be called at any time.
func (c *Capture) Stats() Stats {
	s := Stats{Capture: c.cfg.Source.Namespace(), Topic: c.cfg.Source.Topic, Published: c.published.Load(), Failed: c.failed.Load()}
	h := &c.health
	h.mu.Lock()
	defer h.mu.Unlock()
	s.State, s.Active, s.Stopped = h.state, h.active, h.stopped
	if h.state == stateCapturing && h.refused != "" {
		s.State = h.refused
	}
	if h.active && !h.until.IsZero() {
		s.Lag = new(max(c.cfg.Clock.Now().Sub(h.until).Seconds(), 0))
	}
	return s
}
