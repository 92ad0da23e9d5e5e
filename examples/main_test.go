// Package examples runs every example as a reader would, with its one command. It has no code of
// its own but tests.
package examples

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
