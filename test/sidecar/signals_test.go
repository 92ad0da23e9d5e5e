package sidecar

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// SIGHUP makes the programs read what they otherwise read from time to time: an issuer's keys are fetched each 5 minutes.
func TestHangupReadsFilesAgain(t *testing.T) {
	asked := make(chan struct{}, 10)
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
		asked <- struct{}{}
	}))
	t.Cleanup(keys.Close)
	for _, c := range []struct {
		program        *testkit.Program
		rights, listen string
	}{
		{testkit.SidecarProgram, "publish: [t]", "--listen --replay-listen --ops-listen"},
		{testkit.ControlPlaneProgram, "role: viewer", "--xds-listen --http-listen"},
	} {
		t.Run(c.program.Name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "auth.yaml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "jwt: {issuer: i, audience: a, jwks_url: %q}\nsubjects: [{name: n, %s}]\n",
				keys.URL, c.rights), 0o600))
			args := []string{"--data-dir", t.TempDir(), "--auth-config", file}
			for listener := range strings.FieldsSeq(c.listen) {
				args = append(args, listener, "127.0.0.1:0")
			}
			process := c.program.Start(t, &struct{}{}, args...)
			<-asked // at the start
			running, err := os.FindProcess(process.PID())
			require.NoError(t, err)
			require.NoError(t, running.Signal(syscall.SIGHUP))
			select {
			case <-asked:
			case <-time.After(testkit.Patience):
				t.Error("the keys were not fetched again")
			}
		})
	}
}

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
