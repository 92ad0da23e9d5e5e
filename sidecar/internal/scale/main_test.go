// Package scale connects many sidecars to one control plane: the real program, and in this process
// the real clients that sidecars are, each with a connection of its own. It counts who is sent
// what, and measures how long changes take and what the control plane needs for it.
//
// By default it is small enough to run with all tests, and smaller with -short. At the size of the project's goals, with
// figures that can be compared from one version to the next:
//
//	go test ./sidecar/internal/scale -run Measure -v -timeout 30m \
//	    -sidecars 1000 -policies 10000 -rounds 200 -json scale.json
//
// Each sidecar is an open file here and another one in the control plane. Both processes raise
// their limit of open files as far as they may (ulimit -Hn); the tests say so where that is too
// little.
package scale

import (
	"flag"
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

var (
	sidecars = flag.Int("sidecars", 100, "how many sidecars there are")
	policies = flag.Int("policies", 1000, "how many policies there are, one in a hundred of them a glob")
	rounds   = flag.Int("rounds", 10, "how many changes of each kind are measured")
	jsonFile = flag.String("json", "", "file for the figures, as JSON")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*sidecars, *policies, *rounds = 40, 400, 3
	}
	goleak.VerifyTestMain(alone{m})
}

// alone ends idle connections before leaks are looked for.
type alone struct{ tests *testing.M }

func (a alone) Run() int {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return a.tests.Run()
}
