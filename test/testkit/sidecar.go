package testkit

import "testing"

// Sidecar is one running sidecar.
type Sidecar struct {
	*Process
	Listen, Replay, Ops string // host:port
	DaprGRPC            string // "" without --dapr-grpc-listen
}

// StartSidecar starts a sidecar on a data folder and free ports of the loopback interface, and waits until it is ready.
// Further args are flags. It is killed at the end of the test if it still runs.
func StartSidecar(t testing.TB, dataDir string, args ...string) *Sidecar {
	t.Helper()
	var ready struct {
		Listen, Replay, Ops string
		DaprGRPC            string `json:"dapr_grpc"`
	}
	process := SidecarProgram.Start(t, &ready, append([]string{
		"--data-dir", dataDir, "--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
	}, args...)...)
	return &Sidecar{Process: process, Listen: ready.Listen, Replay: ready.Replay, Ops: ready.Ops, DaprGRPC: ready.DaprGRPC}
}

// URL is the address of the app API.
func (s *Sidecar) URL() string { return "http://" + s.Listen }

// ReplayURL is the address of the replay API.
func (s *Sidecar) ReplayURL() string { return "http://" + s.Replay }

// OpsURL is the address of the ops listener.
func (s *Sidecar) OpsURL() string { return "http://" + s.Ops }
