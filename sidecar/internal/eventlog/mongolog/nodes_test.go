package mongolog

import (
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

func TestNodes(t *testing.T) {
	open := sharedStore(t)
	eventlogtest.RunNodes(t, open(), open())
}
