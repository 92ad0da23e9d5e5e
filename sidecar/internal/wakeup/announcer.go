package wakeup

import (
	"maps"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// maxUnsent bounds the partitions that an Announcer remembers.
const maxUnsent = 1024

// Announcer signals appends to the other sidecars. While there are none it sends no signals, and
// remembers the partitions: a sidecar that starts later may have read one just before.
type Announcer struct {
	HasPeers func() bool // reports whether there are other sidecars
	Send     func(eventlog.Signal)

	mu     sync.Mutex
	unsent map[eventlog.Hint]uint64 // heads, by hint without head; 0 outdoes all
}

// Appended signals one append, or remembers it.
func (a *Announcer) Appended(h eventlog.Hint) {
	if a.HasPeers() {
		a.Send(eventlog.Signal{Appended: []eventlog.Hint{h}})
		return
	}
	head := h.Head
	h.Head = 0
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unsent == nil {
		a.unsent = make(map[eventlog.Hint]uint64)
	}
	if known, ok := a.unsent[h]; ok {
		head = eventlog.HigherHead(known, head)
	}
	a.unsent[h] = head
	if len(a.unsent) > maxUnsent {
		a.unsent = map[eventlog.Hint]uint64{{}: 0} // all topics
	}
}

// Looked signals the remembered partitions, if there are others by now. The roster calls it after
// every look.
func (a *Announcer) Looked() {
	if !a.HasPeers() {
		return
	}
	a.mu.Lock()
	hints := slices.Collect(maps.Keys(a.unsent))
	for i := range hints {
		hints[i].Head = a.unsent[hints[i]]
	}
	a.unsent = nil
	a.mu.Unlock()
	if len(hints) > 0 {
		a.Send(eventlog.Signal{Appended: hints})
	}
}
