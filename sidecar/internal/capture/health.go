package capture

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// States of a capture, for people.
const (
	stateCapturing = "ok"
	stateWaiting   = "another sidecar captures"
)

// health remembers how a capture goes, and logs when that changes.
type health struct {
	logger *slog.Logger

	mu      sync.Mutex
	state   string
	active  bool
	stopped bool
	refused string    // what the log has refused for now; "": nothing
	until   time.Time // everything before it was captured, about; zero: not known here
}

// waits says that it is not this sidecar that captures.
func (h *health) waits() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.active, h.stopped, h.until = stateWaiting, false, false, time.Time{}
}

// captures says that it goes on.
func (h *health) captures() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != stateCapturing {
		h.logger.Info("the collection is captured")
	}
	h.state, h.refused, h.active, h.stopped = stateCapturing, "", true, false
}

// reached says that everything before a time is in the log.
func (h *health) reached(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = at
}

// fails says what ended a session. A capture that has never got anywhere lags from then on.
func (h *health) fails(err error, now time.Time) {
	if errors.Is(err, errTaken) || errors.Is(err, errNotMine) {
		return // the next look says so
	}
	_, stopped := errors.AsType[*stoppedError](err)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case stopped && !h.stopped:
		h.logger.Error("the capture has stopped", "error", err)
	case !stopped && (h.state == stateCapturing || h.state == stateWaiting || h.state == ""):
		h.logger.Warn("the collection cannot be captured; trying on", "error", err)
	}
	h.state, h.active, h.stopped = err.Error(), true, stopped
	if h.until.IsZero() {
		h.until = now
	}
}

// defers says what the log refuses for now.
func (h *health) defers(err *wire.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = err.Error()
}

// Stats are figures for people.
type Stats struct {
	Capture string `json:"capture"` // database.collection
	Topic   string `json:"topic"`
	State   string `json:"state"`  // "ok", who captures else, or what is wrong
	Active  bool   `json:"active"` // it is this sidecar that captures, or tries to
	// Stopped says that it does not go on before somebody does something: its place is lost, or the collection was dropped.
	Stopped bool `json:"stopped"`
	// Lag is for how long not everything has been captured, in seconds; null where this sidecar does not capture.
	Lag       *float64 `json:"lag_seconds"`
	Published int64    `json:"published"` // since the start
	Failed    int64    `json:"failed"`    // since the start
}

// Stats tells how it goes. It may be called at any time.
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
