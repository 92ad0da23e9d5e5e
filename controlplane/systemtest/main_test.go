// Package systemtest uses the real control plane program, with real sidecars, as a platform team
// does. It has nothing but tests; the tests from the sidecar's side are in sidecar/systemtest.
package systemtest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
