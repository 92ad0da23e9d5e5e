// Package controlplane holds the control plane, and the sidecars that follow it, to the
// external contract, as a reader of that page alone would: the real programs, plain HTTP and
// WebSocket frames, JSON written out by hand. It knows no package of the implementation, so that a
// mistake in one cannot hide here.
package controlplane

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
	goleak.VerifyTestMain(tests{m})
}

// tests leave no connection open behind them.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return t.M.Run()
}
