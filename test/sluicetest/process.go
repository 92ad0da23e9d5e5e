package sluicetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// readyTimeout is how long a process may take until it is ready.
const readyTimeout = time.Minute

// maxComplaint bounds the kept part of a process's stderr.
const maxComplaint = 64 << 10

// startProcess runs Options.Program, on the data that an earlier process has left.
func (s *Sidecar) startProcess() error {
	ctx, stop := context.WithCancel(context.Background())
	args := []string{"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(s.dir, "data"), "--node-id", nodeID, "--policies", s.policies()}
	if s.opts.SweepEvery > 0 {
		args = append(args, "--retention-interval", s.opts.SweepEvery.String())
	}
	if n := s.opts.FrameBytes; n > 0 {
		args = append(args, "--limits", fmt.Sprintf("frame=%d,payload=%d", n, min(n, wire.DefaultLimits().PayloadBytes)))
	}
	cmd := exec.CommandContext(ctx, s.opts.Program, args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "SLUICE_") { // these are settings of the test's own
			cmd.Env = append(cmd.Env, variable)
		}
	}
	said := new(complaint)
	cmd.Stderr = said
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return err
	}
	late := time.AfterFunc(readyTimeout, stop)
	defer late.Stop()
	line, _ := bufio.NewReader(stdout).ReadBytes('\n') // where it fails there is no line
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var ready struct{ Listen, Replay, Ops string }
	if err := json.Unmarshal(line, &ready); err != nil {
		stop()
		err := <-ended // all is said then
		return errors.Join(fmt.Errorf("%s did not become ready: %s", s.opts.Program, *said), err)
	}
	s.run.Store(&run{app: ready.Listen, replay: ready.Replay, ops: ready.Ops, stop: stop, ended: ended})
	return nil
}

// Restart kills the process, as a machine that goes off does, and starts another one on its data.
// It panics where it cannot, as with a sidecar in memory, which has nothing to go on with.
func (s *Sidecar) Restart() {
	if s.opts.Program == "" {
		panic("sluicetest: a sidecar in memory cannot be restarted; set Options.Program")
	}
	s.halt()
	if err := s.startProcess(); err != nil {
		panic(fmt.Sprint("sluicetest: ", err))
	}
}

// complaint keeps the beginning of what is written.
type complaint []byte

func (c *complaint) Write(p []byte) (int, error) {
	*c = append(*c, p[:min(len(p), maxComplaint-len(*c))]...)
	return len(p), nil
}
