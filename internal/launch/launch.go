// Package launch starts Sluice's programs for those that need a whole node: the bench and the demo. It knows them by their ready
// line alone.
package launch

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
	"runtime"
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
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor on PATH (make build makes all programs in bin/)", name)
	}
	return path, nil
}

// Start starts a program that prints a ready line, with its log in dir, and waits until it is ready. Its environment is that of
// this process, and env.
func Start(ctx context.Context, dir string, env []string, path string, args ...string) (*Program, error) {
	log, err := os.CreateTemp(dir, filepath.Base(path)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Program{log: log.Name(), ended: make(chan struct{}), cmd: exec.Command(path, args...)}
	p.cmd.Stderr, p.cmd.Env, p.cmd.SysProcAttr = log, append(p.cmd.Environ(), env...), attributes
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started, line := make(chan error, 1), make(chan []byte, 1)
	go func() {
		defer close(p.ended)
		runtime.LockOSThread() // the program ends with the thread that has started it, see attributes
		err := p.cmd.Start()
		if started <- err; err != nil {
			return
		}
		text, _ := bufio.NewReader(out).ReadBytes('\n') // what is no ready line is refused below
		line <- text
		_ = p.cmd.Wait() // a status that is not 0 shows in the log
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	select {
	case text := <-line:
		if err := p.readReady(text); err != nil {
			return nil, errors.Join(fmt.Errorf("%s does not start: %w\n%s", p.Name(), err, p.LastLines()), p.Stop())
		}
		return p, nil
	case <-time.After(readyWithin):
		return nil, errors.Join(fmt.Errorf("%s was not ready within %v\n%s", p.Name(), readyWithin, p.LastLines()), p.Stop())
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

// Name is the name of the program's file.
func (p *Program) Name() string { return filepath.Base(p.cmd.Path) }

// PID is the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Done is closed once the program has ended.
func (p *Program) Done() <-chan struct{} { return p.ended }

// Ended reports whether the program has ended.
func (p *Program) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Status is how the program ended, in words.
func (p *Program) Status() string { return p.cmd.ProcessState.String() }

// Stop ends the program in order, and by force if it does not end, or where the system has no signals.
func (p *Program) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return p.Kill()
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(endsWithin):
		return errors.Join(p.Kill(), fmt.Errorf("%s did not end within %v\n%s", p.cmd.Path, endsWithin, p.LastLines()))
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

// LastLines is the end of the program's log.
func (p *Program) LastLines() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
