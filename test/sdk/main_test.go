// Package systemtest uses the Go client with the real sidecar program, which is killed and started
// again meanwhile. It has nothing but tests.
package sdk

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
