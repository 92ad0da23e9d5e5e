// Package table tests package table with a sidecar. It has no code of its own but tests.
package table_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
