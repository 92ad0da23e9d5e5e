package spool

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// window is how many events a drain has under way at once, of all topics
// together. It goes by how long the store takes for a page, which all sidecars
// feel that drain at the same time: a store that is overloaded, or so slow that
// appends end with their timeout, is given less and less, one that is quick soon
// gets whole pages. An append that ends so is the worst of all: the store goes on
// with it, and what it has stored comes again.
type window struct {
	mu     sync.Mutex
	events int
}

// How long a page may take for the window to double, or to grow at all.
const (
	quickPage = 500 * time.Millisecond
	slowPage  = 1500 * time.Millisecond
)

const (
	minWindow   = 4
	firstWindow = 16 // once the store is back, at most
	// minParallel is what the window has for each topic that is drained at the
	// same time as others.
	minParallel = 16
)

// restart is for when the store was away, if only because it was given too much.
func (w *window) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events == 0 || w.events > firstWindow {
		w.events = firstWindow
	}
}

// split returns how many topics to drain at once, and the bounds of a page of
// each, which are at most those of whole.
func (w *window) split(topics int, whole eventlog.Bounds) (parallel int, page eventlog.Bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	parallel = max(1, min(topics, parallelTopics, w.events/minParallel))
	page.Events = min(w.events/parallel, whole.Events)
	page.Bytes = max(1, int(int64(whole.Bytes)*int64(page.Events)/int64(whole.Events)))
	return parallel, page
}

// adjust adjusts the window to how long a page took; full says that it was as
// large as it might be.
func (w *window) adjust(d time.Duration, full bool, whole eventlog.Bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case d > slowPage:
		w.events = max(w.events/2, minWindow)
	case !full:
	case d < quickPage:
		w.events = min(2*w.events, parallelTopics*whole.Events)
	default:
		w.events = min(w.events+w.events/4, parallelTopics*whole.Events)
	}
}
