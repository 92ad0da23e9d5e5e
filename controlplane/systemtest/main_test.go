// Package systemtest uses the real control plane program, with real sidecars, as a platform team
// does. It has no code of its own but tests; those that look from the sidecar's side are in
// sidecar/systemtest.
package systemtest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
