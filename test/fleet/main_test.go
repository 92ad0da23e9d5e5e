// Package fleet tests a fleet in use: real sidecars, on stores of their own and on shared ones, with real control planes and a
// receiver of their telemetry, as processes that are started, used, cut off and killed. It asks an operator's questions: is a
// change made in one place in force everywhere, does a bad day of the control plane stop anything, and does a replay of the
// whole history miss nothing.
package fleet

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	http.DefaultClient.Transport = &openapitest.Transport{Next: http.DefaultTransport}
	goleak.VerifyTestMain(m)
}
