package testkit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// readyTimeout is how long a program may take to start on a loaded machine.
	readyTimeout = 60 * time.Second
	// logBytes is how much of a process's log is kept at least, its end.
	logBytes = 1 << 20
	// logTailBytes is how much of it a failed test shows.
	logTailBytes = 4096
)

// Process is one running program.
type Process struct {
	cmd    *exec.Cmd
	stderr *tail
	asked  atomic.Bool   // to end, by Kill or Stop
	exited chan struct{} // closed once err is set
	err    error
}

// Start starts the program and waits for its ready line, whose members it puts into ready. The
// process is killed at the end of the test if it still runs.
func (p *Program) Start(t testing.TB, ready any, args ...string) *Process {
	t.Helper()
	process, err := start(p.Binary(t), ready, args)
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	t.Cleanup(func() {
		asked := process.asked.Load()
		process.Kill()
		// The test may have ended dozens of processes itself: their logs would hide the failure.
		if t.Failed() && !asked {
			t.Logf("the log of %s:\n%s", p.Name, process.stderr.last(logTailBytes))
		}
	})
	return process
}

func start(bin string, ready any, args []string) (*Process, error) {
	p := &Process{cmd: exec.Command(bin, args...), stderr: &tail{}, exited: make(chan struct{})}
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
			return nil, fmt.Errorf("ended before it was ready: %v\n%s", p.err, p.stderr.last(logTailBytes))
		}
		if err := parseReady(text, ready); err != nil {
			p.Kill()
			return nil, err
		}
		return p, nil
	case <-timeout.C:
		p.Kill()
		return nil, fmt.Errorf("was not ready within %v, its log:\n%s", readyTimeout, p.stderr.last(logTailBytes))
	}
}

func parseReady(line []byte, into any) error {
	var is struct{ Ready bool }
	if err := json.Unmarshal(line, &is); err != nil || !is.Ready {
		return fmt.Errorf("unexpected ready line %q", line)
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("unexpected ready line %q: %w", line, err)
	}
	return nil
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.asked.Store(true)
	p.cmd.Process.Kill() // an error says that it has ended already
	<-p.exited
}

// Stop asks the process to stop with SIGTERM and returns its exit error.
func (p *Process) Stop(ctx context.Context) error {
	p.asked.Store(true)
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

// Log is the process's stderr so far, its end at least.
func (p *Process) Log() string { return p.stderr.last(logBytes) }

// tail keeps the last bytes that are written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	if len(b.buf) > 2*logBytes {
		b.buf = append(b.buf[:0], b.buf[len(b.buf)-logBytes:]...)
	}
	return len(p), nil
}

func (b *tail) last(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf[max(0, len(b.buf)-n):])
}
