package program

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/require"
)

// asProgram, set in the environment, makes the test binary a program instead, so that Main can be
// tested.
const asProgram = "SLUICE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		Main(Spec{Name: "sluice-test", Settings: new(struct{}), Run: serve})
	}
	goleak.VerifyTestMain(m)
}

// serve is a server that says when the first signal reached it, and stops when its standard input
// ends.
func serve(ctx context.Context, app *App) error {
	if err := app.Ready(Field{"listen", "nowhere"}); err != nil {
		return err
	}
	<-ctx.Done()
	if _, err := app.Stdout.Write([]byte("draining\n")); err != nil {
		return err
	}
	_, _ = bufio.NewReader(app.Stdin).ReadString('\n')
	return nil
}

func TestMainUnderSignals(t *testing.T) {
	for name, test := range map[string]struct {
		second bool
		status int
		stderr string
	}{
		"one": {second: false, status: 0},
		"two": {second: true, status: 143, stderr: "sluice-test: stopped at once by a second signal (terminated)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			program := exec.CommandContext(t.Context(), os.Args[0], "--log-level=error")
			program.Env = append(os.Environ(), asProgram+"=1")
			var stderr strings.Builder
			program.Stderr = &stderr
			stdin, err := program.StdinPipe()
			require.NoError(t, err)
			stdout, err := program.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, program.Start())
			lines := bufio.NewScanner(stdout)
			wantLine(t, lines, `{"ready":true,"listen":"nowhere"}`)
			signalProgram(t, program)
			wantLine(t, lines, "draining")
			if test.second {
				signalProgram(t, program)
			} else {
				stdin.Close()
			}
			if lines.Scan() {
				t.Errorf("more on standard output: %q", lines.Text())
			}
			_ = program.Wait() // its error says no more than the status does
			if status := program.ProcessState.ExitCode(); status != test.status || stderr.String() != test.stderr {
				t.Errorf("status %d, stderr %q, want %d, %q", status, &stderr, test.status, test.stderr)
			}
		})
	}
}

func signalProgram(t *testing.T, program *exec.Cmd) {
	t.Helper()
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

func wantLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() || lines.Text() != want {
		t.Fatalf("line = %q, want %q", lines.Text(), want)
	}
}
