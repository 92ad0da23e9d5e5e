package testkit

import "testing"

// ControlPlane is one running control plane.
type ControlPlane struct {
	*Process
	xds, http string // host:port
}

// StartControlPlane starts a control plane on free ports of the loopback interface and waits until it is ready. Args are flags;
// a later one wins, so --data-dir names a folder that outlives the process, in place of one of its own. It is killed at the end
// of the test if it still runs.
func StartControlPlane(t testing.TB, args ...string) *ControlPlane {
	t.Helper()
	var ready struct{ XDS, HTTP string }
	process := ControlPlaneProgram.Start(t, &ready, append([]string{
		"--data-dir", t.TempDir(), "--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
	}, args...)...)
	return &ControlPlane{Process: process, xds: ready.XDS, http: ready.HTTP}
}

// XDS is the address of the gRPC server, host:port.
func (c *ControlPlane) XDS() string { return c.xds }

// URL is the address of the REST API and the console.
func (c *ControlPlane) URL() string { return "http://" + c.http }
