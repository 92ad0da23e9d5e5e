// Package systemtest uses the real control plane program, with real sidecars,
// as a platform team does. It has no code of its own but tests; those that look
// from the sidecar's side are in sidecar/systemtest.
package systemtest

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/sluice-bus/sluice/controlplane" // so that cached results do not outlive a change of the program
	"github.com/sluice-bus/sluice/internal/controlplanetest"
	"github.com/sluice-bus/sluice/internal/sidecartest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		controlplanetest.Cleanup()
		sidecartest.Cleanup()
		os.Exit(code)
	}))
}
