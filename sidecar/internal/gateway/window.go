package gateway

import (
	"context"
	"sync"

	"github.com/sluice-bus/sluice/sidecar/internal/budget"
)

// window counts the ops of one connection that have no reply yet, and holds the reader back while
// they are too many.
type window struct {
	maxEvents, maxBytes int
	budget              *budget.Budget

	mu            sync.Mutex
	changed       sync.Cond
	events, bytes int
	closed        bool
}

func (w *window) init(b Bounds, memory *budget.Budget) {
	w.maxEvents, w.maxBytes, w.budget = b.UnansweredEvents, b.UnansweredBytes, memory
	w.changed.L = &w.mu
}

// enter counts an op in, once there is room for it or nothing else is under way. It reports false
// when the connection has ended.
func (w *window) enter(events, bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && w.events > 0 && (w.events+events > w.maxEvents || w.bytes+bytes > w.maxBytes || w.budget.Full()) {
		w.changed.Wait()
	}
	if w.closed {
		return false
	}
	w.events += events
	w.bytes += bytes
	w.budget.Take(bytes)
	return true
}

// leave counts an op out: its reply is in the send buffer.
func (w *window) leave(events, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events -= events
	w.bytes -= bytes
	w.budget.Give(bytes)
	w.changed.Broadcast()
}

// empty waits until every op is answered, the connection has ended, or ctx has.
func (w *window) empty(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock() // not between the look at ctx and the wait
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.events > 0 && !w.closed && ctx.Err() == nil {
		w.changed.Wait()
	}
}

// close ends all waits.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.changed.Broadcast()
}
