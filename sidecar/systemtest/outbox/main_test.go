// Package outbox tests the real sidecar program on MongoDB: that it publishes the documents of an
// outbox, migrates a shared store, and removes and compacts events of one. It has nothing but
// tests.
package outbox

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	goleak.VerifyTestMain(m)
}
