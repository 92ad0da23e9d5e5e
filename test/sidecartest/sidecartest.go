// Package sidecartest runs the real sidecar program in tests: built once, started on free ports of
// the loopback interface, stopped or killed by the test. It talks to the program as an operator
// would and imports nothing of it.
package sidecartest

import (
	"testing"

	"github.com/sluice-bus/sluice/test/processtest"
)

// Binary is the path of the program. Launch starts it and waits for nothing, for tests of how it
// starts and ends.
var (
	Binary = processtest.Sidecar.Binary
	Launch = processtest.Sidecar.Launch
)

// Process is one running sidecar.
type Process struct {
	*processtest.Process
	Listen, Replay, Ops string // host:port
}

// URL is the address of the app API.
func (p *Process) URL() string { return "http://" + p.Listen }

// ReplayURL is the address of the replay API.
func (p *Process) ReplayURL() string { return "http://" + p.Replay }

// OpsURL is the address of the ops listener.
func (p *Process) OpsURL() string { return "http://" + p.Ops }

// Start starts a sidecar on a data folder and waits until it is ready. Further args are flags. It
// is killed at the end of the test if it still runs.
func Start(t testing.TB, dataDir string, args ...string) *Process {
	t.Helper()
	var ready struct{ Listen, Replay, Ops string }
	process := processtest.Sidecar.Start(t, &ready, append([]string{
		"--data-dir", dataDir, "--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
	}, args...)...)
	return &Process{Process: process, Listen: ready.Listen, Replay: ready.Replay, Ops: ready.Ops}
}
