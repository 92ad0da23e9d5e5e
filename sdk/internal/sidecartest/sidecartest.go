// Package sidecartest runs a sidecar as a process, for tests of modules that do without the sidecar's own module. Tests that can have
// it use test/sluicetest.
package sidecartest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Variable is the environment variable with the path of sluice-sidecar.
const Variable = "SLUICE_SIDECAR"

// A Sidecar is a process whose data is in a temporary folder.
type Sidecar struct {
	Address string // of the app listener, host:port; it stays the same after a Restart

	t       testing.TB
	args    []string
	process *exec.Cmd
}

// Start runs the sidecar with policies, a file's text, until the test ends. Without Variable the test is skipped.
func Start(t testing.TB, policies string) *Sidecar {
	t.Helper()
	if os.Getenv(Variable) == "" {
		t.Skipf("%s has no path of a sidecar: make check-adapters runs this with one", Variable)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Sidecar{Address: "127.0.0.1:0", t: t, args: []string{
		"--data-dir", filepath.Join(dir, "data"), "--policies", file, "--log-level", "error",
		"--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
	}}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// URL is the address of the app listener as clients take it.
func (s *Sidecar) URL() string { return "http://" + s.Address }

// Restart kills the process, and starts another one on its data.
func (s *Sidecar) Restart() {
	s.kill()
	s.start()
}

func (s *Sidecar) start() {
	s.process = exec.Command(os.Getenv(Variable), append(s.args, "--listen", s.Address)...)
	s.process.Stderr = os.Stderr
	stdout, err := s.process.StdoutPipe()
	if err == nil {
		err = s.process.Start()
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	line, _ := bufio.NewReader(stdout).ReadBytes('\n') // where it fails there is no line
	var ready struct{ Listen string }
	if err := json.Unmarshal(line, &ready); err != nil {
		s.t.Errorf("the sidecar did not become ready: %v", err)
	}
	s.Address = ready.Listen
}

func (s *Sidecar) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}
