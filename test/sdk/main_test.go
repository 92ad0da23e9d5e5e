// Package sdk_test uses the Go client, and what it has for applications on MongoDB, with the real sidecar program, which is
// killed and started again meanwhile, and with one that runs in the test.
package sdk_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets more tests run at once than there are processors: parallel tests here wait most of their time.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")
	if os.Getenv(killSidecar) != "" {
		os.Exit(m.Run()) // it is killed
	}
	goleak.VerifyTestMain(m)
}
