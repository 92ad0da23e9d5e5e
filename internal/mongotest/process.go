package mongotest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// readyTimeout is how long a server may take to start on a loaded machine.
	readyTimeout = 60 * time.Second
	// stopTimeout is how long it may take to stop before it is killed.
	stopTimeout = 10 * time.Second
	// logTailBytes is how much of a server's log a failed test shows.
	logTailBytes = 4096
)

// process is a server that this test process starts, as often as it is told to, on one port and one data folder. It is
// run without goroutines: the log goes to a file, and whoever ends the server waits for it.
type process struct {
	bin, dir string
	args     []string
	uri      string // the same for good once it has been started

	mu    sync.Mutex
	cmd   *exec.Cmd // nil: it does not run
	stdin *os.File  // its end tells the server to end, so it must stay reachable
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return errors.New("the MongoDB server runs already")
	}
	listen := "127.0.0.1:0"
	if p.uri != "" {
		u, err := url.Parse(p.uri)
		if err != nil {
			return err
		}
		listen = u.Host
	}
	deadline := time.Now().Add(readyTimeout)
	for {
		err := p.startOn(listen, deadline)
		// Its port may be lent to a connection of somebody else just now.
		if err == nil || p.uri == "" || time.Now().After(deadline) || !bytes.Contains(p.logTail(), []byte("address already in use")) {
			return err
		}
	}
}

// startOn starts the program once and waits for the line that says that it serves.
func (p *process) startOn(listen string, deadline time.Time) error {
	stdinR, stdinW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdinR.Close()
	stdoutR, stdoutW, err := os.Pipe()
	if err != nil {
		stdinW.Close()
		return err
	}
	defer stdoutR.Close()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		stdinW.Close()
		stdoutW.Close()
		return err
	}
	defer log.Close()

	cmd := exec.Command(p.bin, append([]string{"--listen", listen, "--data-dir", p.dir, "--exit-with-stdin"}, p.args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdinR, stdoutW, log
	err = cmd.Start()
	stdoutW.Close()
	if err != nil {
		stdinW.Close()
		return err
	}
	p.cmd, p.stdin = cmd, stdinW

	var ready struct {
		Ready bool
		URI   string
	}
	stdoutR.SetReadDeadline(deadline) // fails on files only
	if err := json.NewDecoder(stdoutR).Decode(&ready); err != nil || !ready.Ready {
		p.end(cmd.Process.Kill)
		return fmt.Errorf("the MongoDB server did not get ready (%v), its log:\n%s", err, p.logTail())
	}
	p.uri = ready.URI
	return nil
}

// stop ends the server, with force if it takes too long.
func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	process := p.cmd.Process
	force := time.AfterFunc(stopTimeout, func() { process.Kill() })
	p.end(func() error { return process.Signal(syscall.SIGTERM) })
	if !force.Stop() {
		return fmt.Errorf("the MongoDB server did not stop within %v", stopTimeout)
	}
	return nil
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.end(p.cmd.Process.Kill)
	}
}

// end waits for the end of the server that how brings about. How it ended is nobody's concern: it may have ended before.
func (p *process) end(how func() error) {
	_ = how()
	_ = p.cmd.Wait()
	p.stdin.Close()
	p.cmd, p.stdin = nil, nil
}

func (p *process) logFile() string { return filepath.Join(p.dir, "server.log") }

func (p *process) logTail() []byte {
	f, err := os.Open(p.logFile())
	if err != nil {
		return []byte(err.Error())
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, size-logTailBytes), io.SeekStart)
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return []byte(err.Error())
	}
	return tail
}
