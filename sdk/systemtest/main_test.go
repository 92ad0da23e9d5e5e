// Package systemtest uses the Go client with the real sidecar program, which is
// killed and started again meanwhile. It has no code of its own but tests.
package systemtest

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/internal/sidecartest"
	_ "github.com/sluice-bus/sluice/sidecar" // so that cached results do not outlive a change of the program
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		sidecartest.Cleanup()
		os.Exit(code)
	}))
}
