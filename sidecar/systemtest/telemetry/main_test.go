// Package telemetry_test tests the signals that real sidecars and control planes send over
// OpenTelemetry's protocol, with a real receiver.
package telemetry_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
