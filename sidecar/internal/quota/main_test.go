package quota_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs fewer histories than rapid's hundred where -rapid.checks says nothing: each is
// minutes of a fleet, and takes a second with the race detector.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	flag.Parse() // what the command line says comes last
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}
