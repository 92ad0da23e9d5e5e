// Package outbox tests the real sidecar program on MongoDB: that it publishes what applications
// leave in an outbox, migrates a shared store, and removes and compacts what is in one. It has no
// code of its own but tests.
package outbox

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/internal/processtest"
)

func TestMain(m *testing.M) {
	processtest.Parallel()
	goleak.VerifyTestMain(m)
}
