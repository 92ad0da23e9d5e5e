// Package application tests what Sluice is for: an application of three services, written with the
// SDK, each in processes of its own, while the sidecar, the services and their database are killed,
// paused and away. It has no code of its own but tests.
package application

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is one of the services, too, where the first argument says so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serviceArgument {
		os.Exit(serve(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
