package spool

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// window is how many events a drain has in flight, over all topics. It depends on how long the
// store takes for a page, which all draining sidecars observe. An overloaded store, or one so slow
// that appends time out, gets smaller and smaller pages. A quick store soon gets whole pages. An
// append that times out is the worst case: the store continues it, and the drain sends the stored
// events again.
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
	firstWindow = 16 // at most, once the store is back
	// minParallel is the least window for each topic if several are drained at the same time.
	minParallel = 16
)

// restart is called after the store was away, perhaps since the window was too large.
func (w *window) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events == 0 || w.events > firstWindow {
		w.events = firstWindow
	}
}

// split returns how many topics to drain at once, and the bounds of a page of each, at most whole.
func (w *window) split(topics int, whole eventlog.Bounds) (parallel int, page eventlog.Bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	parallel = max(1, min(topics, parallelTopics, w.events/minParallel))
	page.Events = min(w.events/parallel, whole.Events)
	page.Bytes = max(1, int(int64(whole.Bytes)*int64(page.Events)/int64(whole.Events)))
	return parallel, page
}

// adjust adjusts the window after a page that took d. full says that the page was as large as its
// bounds.
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
