package spool

import (
	"maps"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// account counts the spool's events. An event counts from before its write until after its removal.
// If it is not known whether its write succeeded, it counts until the topic is drained.
type account struct {
	mu       sync.Mutex
	events   int
	bytes    int64
	full     bool                // an event was refused by the bound on all topics
	spooling map[*topic]struct{} // the spooling topics
}

// take counts an event if there is room for it, or else returns the bound that has been reached. A
// bound of 0 is none.
func (a *account) take(t *topic, size, topicBytes, totalBytes int64) (bound string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case topicBytes > 0 && t.bytes+size > topicBytes:
		bound = boundTopic
	case totalBytes > 0 && a.bytes+size > totalBytes:
		bound = boundTotal
	default:
		a.change(t, 1, size)
	}
	if bound != boundTopic {
		a.full = bound == boundTotal
	}
	return bound
}

// change adds to the counts; mu is held.
func (a *account) change(t *topic, events int, bytes int64) {
	t.events += events
	t.bytes += bytes
	a.events += events
	a.bytes += bytes
}

// give subtracts events from the counts.
func (a *account) give(t *topic, events int, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(t, -events, -bytes)
	a.full = false
}

// begin says that the topic has events in the spool, or is about to.
func (a *account) begin(t *topic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.spooling.Store(true)
	a.spooling[t] = struct{}{}
}

// end says that the topic has nothing in the spool; its gate is shut.
func (a *account) end(t *topic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(t, -t.events, -t.bytes)
	a.full = false
	t.pacing.over()
	delete(a.spooling, t)
	t.spooling.Store(false)
}

// fits reports whether the topic's events are within these bounds.
func (a *account) fits(t *topic, b eventlog.Bounds) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.events <= b.Events && t.bytes <= int64(b.Bytes)
}

// list are the topics that are spooling, in any order.
func (a *account) list() []*topic {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.spooling))
}

func (a *account) stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Stats{Events: a.events, Bytes: a.bytes, Draining: len(a.spooling) > 0, Full: a.full}
}
