// Package sidecar tests the real sidecar program from outside, on a store of its own and on a shared one: as processes that
// are started, used, starved, paused and killed, alone, in a fleet, and under an application of three services whose effects
// are counted.
package sidecar

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/testkit"
)

// TestMain runs one of the application's services instead, where the first argument names it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serviceArgument {
		os.Exit(serve(os.Args[2:]))
	}
	testkit.Parallel()
	goleak.VerifyTestMain(m)
}
