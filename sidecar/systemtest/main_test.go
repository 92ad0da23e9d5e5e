// Package systemtest tests the real sidecar program from outside: as processes that are started,
// used, starved and killed. It has nothing but tests.
package systemtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	goleak.VerifyTestMain(m)
}
