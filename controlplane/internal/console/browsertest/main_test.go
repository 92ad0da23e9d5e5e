// Package browsertest drives the console in a real browser: console.mjs does,
// and its Go test starts it against the control plane's API and policies, and a
// fleet that is made up here. It has nothing but these tests.
package browsertest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
