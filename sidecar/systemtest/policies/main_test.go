// Package policies_test tests a fleet in use: real sidecars and real control planes, as processes
// that are started, used, cut off and killed. It asks an operator's questions: is a change made in
// one place in force everywhere, and does a bad day of the control plane stop anything.
package policies_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	goleak.VerifyTestMain(m)
}
