package mongolog

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// Servers that cannot trim a pushed array enter changes in another way.
func TestNodes(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plainly %v", plain), func(t *testing.T) {
			open := sharedStore(t, func(e *engine) { e.mongo = e.mongo && !plain })
			eventlogtest.RunNodes(t, open(), open())
		})
	}
}
