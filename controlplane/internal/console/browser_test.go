package console_test

import (
	"testing"

	"github.com/sluice-bus/sluice/test/browsertest"
)

// TestConsole uses the console with a fleet that is made up, so that everything that can be seen
// there is.
func TestConsole(t *testing.T) {
	browsertest.Run(t, browsertest.Target{
		URL:         startControlPlane(t, everybody{}),
		Topic:       "orders.created",
		AuthURL:     startControlPlane(t, tokens{"view-token": "viewer", "admin-token": "admin"}),
		ViewerToken: "view-token",
		AdminToken:  "admin-token",
		Shots:       "made-up-fleet",
	})
}
