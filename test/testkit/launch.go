package testkit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// Launched is a program that was started by hand, for tests of how it starts and ends.
type Launched struct {
	Process *os.Process
	Stdout  *bufio.Reader

	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// Launch starts the program with further variables in its environment and waits for nothing. It is
// killed at the end of the test if it still runs.
func (p *Program) Launch(t testing.TB, env []string, args ...string) *Launched {
	t.Helper()
	l := &Launched{cmd: exec.Command(p.Binary(t), args...)}
	l.cmd.Env = append(os.Environ(), env...)
	l.cmd.Stderr = &l.stderr
	out, err := l.cmd.StdoutPipe()
	require.NoError(t, err)
	l.Stdout = bufio.NewReader(out)
	require.NoError(t, l.cmd.Start())
	l.Process = l.cmd.Process
	t.Cleanup(func() {
		l.Process.Kill()
		_ = l.cmd.Wait() // an error says that the test has waited for it already
	})
	return l
}

// Ended waits for the program's end and returns the rest of its standard output, all of its
// standard error and its exit status.
func (l *Launched) Ended(t testing.TB) (stdout, stderr string, status int) {
	t.Helper()
	kill := time.AfterFunc(readyTimeout, func() { l.Process.Kill() })
	defer kill.Stop()
	rest, err := io.ReadAll(l.Stdout)
	require.NoError(t, err)
	var exit *exec.ExitError
	if err := l.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(rest), l.stderr.String(), l.cmd.ProcessState.ExitCode()
}
