// Package telemetry_test tests what real sidecars and control planes send over
// OpenTelemetry's protocol, with a real receiver of it.
package telemetry_test

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/sluice-bus/sluice/controlplane" // so that cached results do not outlive a change of the programs
	_ "github.com/sluice-bus/sluice/sidecar"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
