package ws_test

import (
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// sidecar has the helpers of this package's tests.
type sidecar struct{ *gatewaytest.Sidecar }

func start(t testing.TB, s gatewaytest.Setup) *sidecar {
	t.Helper()
	return &sidecar{gatewaytest.Start(t, s)}
}
