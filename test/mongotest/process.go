package mongotest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	// readyTimeout is how long a server may take to start, or to execute an order, on a loaded
	// machine.
	readyTimeout = 60 * time.Second
	// logTailBytes is how much of a server's log a failed test shows.
	logTailBytes = 16 << 10
)

// process is a server that this test process starts. It has no goroutines: the log goes to a file,
// and the caller that ends the server waits for it.
type process struct {
	bin, dir string
	args     []string
	uri      string

	mu     sync.Mutex
	cmd    *exec.Cmd      // nil: it does not run
	stdin  io.WriteCloser // its end tells the server to end, so it must stay reachable
	stdout *os.File
	lines  *json.Decoder // of stdout
}

// start starts the program and waits for the line that says that it serves.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.bin, p.args...)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.stdin, p.stdout, p.lines = cmd, stdin, stdout.(*os.File), json.NewDecoder(stdout)

	var ready struct {
		Ready bool
		URI   string
	}
	if err := p.read(&ready); err != nil || !ready.Ready {
		p.end(cmd.Process.Kill)
		return fmt.Errorf("the MongoDB server did not get ready (%v), its log:\n%s", err, p.logTail())
	}
	p.uri = ready.URI
	return nil
}

// read reads a line of the server.
func (p *process) read(line any) error {
	p.stdout.SetReadDeadline(time.Now().Add(readyTimeout)) // fails on files only
	return p.lines.Decode(line)
}

// order sends the model an order and waits until it has executed it.
func (p *process) order(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return errors.New("the MongoDB server does not run")
	}
	if _, err := fmt.Fprintln(p.stdin, what); err != nil {
		return fmt.Errorf("telling the MongoDB server to %s: %w, its log:\n%s", what, err, p.logTail())
	}
	var answer struct{ Done, Error string }
	err := p.read(&answer)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return fmt.Errorf("telling the MongoDB server to %s: %w, its log:\n%s", what, err, p.logTail())
	}
	return nil
}

// stop ends the server, which writes its last commands to its log.
func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.end(p.stdin.Close)
	}
}

// end waits for the server to end, which how causes. It ignores the exit status: the server may
// have ended before.
func (p *process) end(how func() error) {
	_ = how()
	_ = p.cmd.Wait() // which closes the pipes
	p.cmd, p.stdin, p.stdout = nil, nil, nil
}

// logFile is where the server's log goes; without a folder, nowhere.
func (p *process) logFile() string {
	if p.dir == "" {
		return os.DevNull
	}
	return filepath.Join(p.dir, "server.log")
}

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
