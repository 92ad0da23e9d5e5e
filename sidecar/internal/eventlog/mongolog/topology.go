package mongolog

import (
	"fmt"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
)

// topology watches which server takes writes. What was acknowledged below
// majority may be gone once another one does, or the same one after a crash.
type topology struct {
	// generation rises whenever that changes.
	generation atomic.Uint64
}

func (t *topology) monitor() *event.ServerMonitor {
	return &event.ServerMonitor{
		// The driver calls this under a lock, in order, and before it sends
		// anything to the new primary.
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) {
			if writable(e.PreviousDescription) != writable(e.NewDescription) {
				t.generation.Add(1)
			}
		},
	}
}

// writable names the server that takes writes, and its term.
func writable(t event.TopologyDescription) string {
	for i := range t.Servers {
		switch s := &t.Servers[i]; s.Kind {
		case "RSPrimary":
			return fmt.Sprintf("%s %s", s.Addr, s.ElectionID.Hex())
		case "Standalone", "LoadBalancer", "Mongos":
			return fmt.Sprintf("%s %s", s.Addr, s.TopologyVersionProcessID.Hex())
		}
	}
	return ""
}
