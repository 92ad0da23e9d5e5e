// Package controlplanetest runs the real control plane program in tests: built once per test
// binary, started on free ports of the loopback interface, stopped or killed by the test. It talks
// to the program as an operator would and imports nothing of it.
package controlplanetest

import (
	"testing"

	"github.com/sluice-bus/sluice/test/processtest"
)

// Binary is the path of the program. Launch starts it and waits for nothing, for tests of how it
// starts and ends.
var (
	Binary = processtest.ControlPlane.Binary
	Launch = processtest.ControlPlane.Launch
)

// Process is one running control plane.
type Process struct {
	*processtest.Process
	xds, http string // host:port
}

// XDS is the address of the gRPC server, host:port.
func (p *Process) XDS() string { return p.xds }

// URL is the address of the REST API and the console.
func (p *Process) URL() string { return "http://" + p.http }

// Start starts a control plane on free ports and waits until it is ready. Args are flags; a later
// one wins, so --data-dir names a folder that outlives the process, in place of one of its own. It
// is killed at the end of the test if it still runs.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	var ready struct{ XDS, HTTP string }
	process := processtest.ControlPlane.Start(t, &ready, append([]string{
		"--data-dir", t.TempDir(), "--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
	}, args...)...)
	return &Process{Process: process, xds: ready.XDS, http: ready.HTTP}
}
