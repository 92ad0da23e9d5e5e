package ws

import (
	"context"
	"sync"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// window counts the unanswered ops of one connection, and holds the reader back while there are too
// many.
type window struct {
	maxEvents, maxBytes int
	budget              *budget.Share

	mu            sync.Mutex
	changed       sync.Cond
	events, bytes int
	closed        bool
}

func (w *window) init(b session.Bounds, memory *budget.Share) {
	w.maxEvents, w.maxBytes, w.budget = b.UnansweredEvents, b.UnansweredBytes, memory
	w.changed.L = &w.mu
}

// enter counts one more op, once there is room for it or no other op is unanswered. It reports
// false when the connection has ended.
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

// charge has what waits, and what comes, counted in another share.
func (w *window) charge(memory *budget.Share) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget.Give(w.bytes)
	w.budget = memory
	memory.Take(w.bytes)
}

// leave counts one op less: its reply is in the send buffer.
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
		w.mu.Lock() // so that it happens between a check of ctx and the wait
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
