// Package node starts the programs that a bench run measures, and says what they use.
package node

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
	"strings"
	"syscall"
	"time"
)

// A Program is one that runs.
type Program struct {
	// Ready is the program's ready line.
	Ready map[string]string
	cmd   *exec.Cmd
	log   string // a file
	ended chan struct{}
}

// readyWithin and endsWithin bound the start and the end of a program.
const (
	readyWithin = time.Minute
	endsWithin  = 20 * time.Second
)

// Find returns the path of one of Sluice's programs: beside this one, or on PATH.
func Find(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor on PATH (make build makes both in bin/)", name)
	}
	return path, nil
}

// Start starts a program that prints a ready line, with its log in dir, and waits until it is ready.
func Start(ctx context.Context, dir, path string, args ...string) (*Program, error) {
	log, err := os.CreateTemp(dir, filepath.Base(path)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Program{log: log.Name(), ended: make(chan struct{}), cmd: exec.Command(path, args...)}
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line := make(chan []byte, 1)
	go func() {
		defer close(p.ended)
		text, _ := bufio.NewReader(out).ReadBytes('\n') // what is no ready line is refused below
		line <- text
		_ = p.cmd.Wait() // a status that is not 0 shows in the log
	}()
	select {
	case text := <-line:
		if err := p.readReady(text); err != nil {
			return nil, errors.Join(fmt.Errorf("%s does not start: %w\n%s", filepath.Base(path), err, p.lastLines()), p.Stop())
		}
		return p, nil
	case <-time.After(readyWithin):
		return nil, errors.Join(fmt.Errorf("%s was not ready within %v\n%s", filepath.Base(path), readyWithin, p.lastLines()), p.Stop())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Stop())
	}
}

func (p *Program) readReady(line []byte) error {
	var members map[string]any
	if err := json.Unmarshal(line, &members); err != nil {
		return fmt.Errorf("the first line of its output is no ready line: %q", line)
	}
	p.Ready = map[string]string{}
	for name, value := range members {
		if text, ok := value.(string); ok {
			p.Ready[name] = text
		}
	}
	return nil
}

// PID is the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Ended reports whether the program has ended.
func (p *Program) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Stop ends the program in order, and by force if it does not end.
func (p *Program) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(endsWithin):
		return errors.Join(p.Kill(), fmt.Errorf("%s did not end within %v\n%s", p.cmd.Path, endsWithin, p.lastLines()))
	}
}

// Kill ends the program at once, with SIGKILL.
func (p *Program) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// lastLines is the end of the program's log.
func (p *Program) lastLines() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
