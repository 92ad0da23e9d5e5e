//go:build unix

// Package demo runs `sluice demo` as people do, and looks at what it leaves behind.
package demo

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	goleak.VerifyTestMain(m)
}

// demo is one that runs.
type demo struct {
	*testkit.Launched
	scratch  string // where it has its folder
	console  string
	sidecars []string
}

func start(t *testing.T, args ...string) *demo {
	t.Helper()
	for _, program := range []*testkit.Program{testkit.SidecarProgram, testkit.ControlPlaneProgram} {
		program.Binary(t) // beside the client
	}
	d := &demo{scratch: t.TempDir()}
	env := []string{"TMPDIR=" + d.scratch, "SLUICE_LISTEN=not meant for these", "SLUICE_URL=http://127.0.0.1:1", "SLUICE_STORE="}
	d.Launched = testkit.ClientProgram.Launch(t, env, append([]string{"demo", "-o", "json"}, args...)...)
	line, err := d.Stdout.ReadBytes('\n')
	if err != nil {
		_, stderr, _ := d.Ended(t)
		t.Fatalf("%v: %s", err, stderr)
	}
	ready := testkit.ParseObject(t, line)
	d.console = ready.Text("console")
	for _, url := range ready["sidecars"].([]any) {
		d.sidecars = append(d.sidecars, url.(string))
	}
	return d
}

// wantGone fails unless all that the demo has started has ended.
func (d *demo) wantGone(t *testing.T) {
	t.Helper()
	for _, url := range append(d.sidecars, d.console) {
		address := strings.Trim(strings.TrimPrefix(url, "http://"), "/")
		testkit.Eventually(t, "nobody listens at "+address, func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
	}
}

func (d *demo) wantNothingLeft(t *testing.T) {
	t.Helper()
	d.wantGone(t)
	left, err := os.ReadDir(d.scratch)
	require.NoError(t, err)
	if len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

// TestDemo: events pass through the whole shop on one sidecar and on three, and nothing stays once it ends.
func TestDemo(t *testing.T) {
	for sidecars, end := range map[int]syscall.Signal{1: syscall.SIGINT, 3: syscall.SIGTERM} {
		t.Run(fmt.Sprint(sidecars), func(t *testing.T) {
			t.Parallel()
			var args []string
			if sidecars > 1 {
				args = []string{"--store", mongotest.Start(t).URI("sluice_demo")}
			}
			d := start(t, args...)
			if len(d.sidecars) != sidecars {
				t.Fatalf("it has the sidecars %v", d.sidecars)
			}
			testkit.Eventually(t, "parcels are sent", func() bool {
				return testkit.Call(t, "GET", d.sidecars[0]+"/v1/topics/parcels.sent/latest", "").Status == 200
			})
			testkit.Eventually(t, "the control plane sees the shop", func() bool {
				overview := testkit.Call(t, "GET", d.console+"v1/overview", "")
				return strings.Contains(string(overview.Body), fmt.Sprintf(`"live":%d,`, sidecars)) &&
					!strings.Contains(string(overview.Body), `"topics":0`)
			})
			require.NoError(t, d.Process.Signal(end))
			stdout, stderr, status := d.Ended(t)
			if status != 0 || stdout != "" || stderr != "" {
				t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
			}
			d.wantNothingLeft(t)
		})
	}
}

// TestDemoNamesWhatEnded: the demo ends where one of its programs does, and says which.
func TestDemoNamesWhatEnded(t *testing.T) {
	t.Parallel()
	d := start(t)
	pid := children(t, d.Process.Pid)["sluice-sidecar"]
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	_, stderr, status := d.Ended(t)
	want := fmt.Sprintf("sluice-sidecar (process %d) ended by itself: signal: killed", pid)
	if status != 1 || !strings.Contains(stderr, want) {
		t.Errorf("status %d, stderr %q; want 1 and %q", status, stderr, want)
	}
	d.wantNothingLeft(t)
}

// TestKilledDemoLeavesNoProcess: on Linux its programs end with it.
func TestKilledDemoLeavesNoProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends processes with their parent")
	}
	d := start(t)
	require.NoError(t, d.Process.Kill())
	d.wantGone(t)
}

// children are the processes that a process has started, by the names of their programs.
func children(t *testing.T, parent int) map[string]int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	require.NoError(t, err)
	found := map[string]int{}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			path, err := os.Readlink("/proc/" + field + "/exe")
			require.NoError(t, err)
			found[filepath.Base(path)] = pid
		}
	}
	return found
}
