// Package controlplanetest runs the real control plane program in tests: built
// once per test binary, started on free ports of the loopback interface,
// stopped or killed by the test. It talks to the program as an operator would
// and imports nothing of it.
package controlplanetest

import (
	"testing"

	"github.com/sluice-bus/sluice/internal/processtest"
	"github.com/sluice-bus/sluice/internal/testbuild"
)

var program = processtest.New(testbuild.ControlPlane)

// Binary is the path of the program.
func Binary(t testing.TB) string {
	t.Helper()
	return program.Binary(t)
}

// Launch starts the program with further variables in its environment and
// waits for nothing, for tests of how it starts and ends.
func Launch(t testing.TB, env []string, args ...string) *processtest.Launched {
	t.Helper()
	return program.Launch(t, env, args...)
}

// Process is one running control plane.
type Process struct {
	*processtest.Process
	xds, http string // host:port
}

// XDS is the address of the gRPC server, host:port.
func (p *Process) XDS() string { return p.xds }

// URL is the address of the REST API and the console.
func (p *Process) URL() string { return "http://" + p.http }

// Start starts a control plane on free ports and waits until it is ready. Args
// are flags; a later one wins, so --data-dir names a folder that outlives the
// process, in place of one of its own. It is killed at the end of the test if
// it still runs.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	var ready struct{ XDS, HTTP string }
	process := program.Start(t, &ready, append([]string{
		"--data-dir", t.TempDir(), "--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
	}, args...)...)
	return &Process{Process: process, xds: ready.XDS, http: ready.HTTP}
}
