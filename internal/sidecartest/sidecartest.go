// Package sidecartest runs the real sidecar program in tests: built once per
// test binary, started on free ports of the loopback interface, stopped or
// killed by the test. It talks to the program as an operator would and imports
// nothing of it.
package sidecartest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// readyTimeout is how long a sidecar may take to start on a loaded machine.
const readyTimeout = 60 * time.Second

// build makes the program once for all tests of the process.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sluice-sidecar-test-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "sluice-sidecar")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "github.com/sluice-bus/sluice/sidecar/cmd/sluice-sidecar")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the sidecar: %w\n%s", err, out)
	}
	return bin, nil
})

// Cleanup removes the program that was built. TestMain calls it at the end.
func Cleanup() {
	if bin, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
}

// Binary is the path of the program.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// Process is one running sidecar.
type Process struct {
	Listen, Replay, Ops string // host:port

	cmd    *exec.Cmd
	stderr *safeBuffer
	exited chan struct{} // closed once err is set
	err    error
}

// URL is the address of the app API.
func (p *Process) URL() string { return "http://" + p.Listen }

// ReplayURL is the address of the replay API.
func (p *Process) ReplayURL() string { return "http://" + p.Replay }

// OpsURL is the address of the ops listener.
func (p *Process) OpsURL() string { return "http://" + p.Ops }

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Start starts a sidecar on a data folder and waits until it is ready. Further
// args are flags. It is killed at the end of the test if it still runs.
func Start(t testing.TB, dataDir string, args ...string) *Process {
	t.Helper()
	p, err := start(Binary(t), append([]string{
		"--data-dir", dataDir, "--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
	}, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the sidecar's log:\n%s", p.stderr.tail(4096))
		}
	})
	return p
}

func start(bin string, args []string) (*Process, error) {
	p := &Process{cmd: exec.Command(bin, args...), stderr: &safeBuffer{}, exited: make(chan struct{})}
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line := make(chan []byte, 1)
	go func() {
		s := bufio.NewScanner(out)
		if s.Scan() {
			line <- bytes.Clone(s.Bytes())
		}
		close(line)
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	select {
	case text, ok := <-line:
		if !ok {
			<-p.exited
			return nil, fmt.Errorf("the sidecar ended before it was ready: %v\n%s", p.err, p.stderr.tail(4096))
		}
		var ready struct {
			Ready               bool
			Listen, Replay, Ops string
		}
		if err := json.Unmarshal(text, &ready); err != nil || !ready.Ready {
			p.Kill()
			return nil, fmt.Errorf("unexpected ready line %q", text)
		}
		p.Listen, p.Replay, p.Ops = ready.Listen, ready.Replay, ready.Ops
		return p, nil
	case <-timeout.C:
		p.Kill()
		return nil, errors.New("the sidecar was not ready in time")
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // an error says that it has ended already
	<-p.exited
}

// Stop asks the process to stop with SIGTERM and returns its exit error.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Log is what the process wrote to stderr so far, its end at least.
func (p *Process) Log() string { return p.stderr.tail(1 << 20) }

// safeBuffer keeps the last part of what is written to it.
type safeBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	const keep = 1 << 20
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	if len(b.buf) > 2*keep {
		b.buf = append(b.buf[:0], b.buf[len(b.buf)-keep:]...)
	}
	return len(p), nil
}

func (b *safeBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf[max(0, len(b.buf)-n):])
}
