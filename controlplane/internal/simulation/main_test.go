package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// TestMain has the collector run seldom: a schedule keeps little, and makes much garbage.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	debug.SetMemoryLimit(512 << 20)
	goleak.VerifyTestMain(m)
}
