package sidecar

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// Nobody reads the log any more, as when a log shipper restarts, and the terminal is closed: the programs go on, and SIGTERM still
// drains.
func TestReadersOfTheLogGoAway(t *testing.T) {
	for _, c := range []struct {
		program *testkit.Program
		args    []string
	}{
		{testkit.SidecarProgram, []string{"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}},
		{testkit.ControlPlaneProgram, []string{"--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"}},
	} {
		t.Run(c.program.Name, func(t *testing.T) {
			logRead, logWrite, err := os.Pipe()
			require.NoError(t, err)
			cmd := exec.Command(c.program.Binary(t), append(c.args, "--data-dir", t.TempDir(), "--log-level", "debug")...)
			cmd.Stderr = logWrite
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill() })
			logWrite.Close()
			line, err := bufio.NewReader(out).ReadBytes('\n')
			var ready struct{ Ops, HTTP string }
			if err == nil {
				err = json.Unmarshal(line, &ready)
			}
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			logRead.Close()
			for range 2 {
				require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
			}
			resp, err := http.Get("http://" + strings.TrimSpace(ready.Ops+ready.HTTP) + "/healthz")
			require.NoError(t, err)
			resp.Body.Close()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // whose lines of the log find no reader
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v; want status 0", err)
			}
		})
	}
}
