package boltstore_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(appenderDir); dir != "" {
		appendUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}
