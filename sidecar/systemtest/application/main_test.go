// Package application tests Sluice's purpose: an application of three services, written with the
// SDK, each in processes of its own, while the sidecar, the services and their database are killed,
// paused and away. It has nothing but tests.
package application

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs one of the services instead, where the first argument names it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serviceArgument {
		os.Exit(serve(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
