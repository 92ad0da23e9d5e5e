// Package examples runs every example as a reader would, with its one command. It has no code of its own but tests.
package examples

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/sluice-bus/sluice/controlplane" // so that cached results do not outlive a change of the programs
	_ "github.com/sluice-bus/sluice/sdk"
	_ "github.com/sluice-bus/sluice/sdk/exactlyonce/mongostore"
	_ "github.com/sluice-bus/sluice/sidecar"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
