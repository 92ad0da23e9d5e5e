package deploytest

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// A unit of systemd, with the program that it starts and the listeners of that, which a test moves away from their ports.
type unit struct {
	program   *testkit.Program
	file      string
	settings  string
	listeners []string
}

var units = []unit{
	{testkit.SidecarProgram, "sluice-sidecar.service", "sidecar.yaml", []string{"LISTEN", "REPLAY_LISTEN", "OPS_LISTEN"}},
	{testkit.ControlPlaneProgram, "sluice-controlplane.service", "controlplane.yaml", []string{"HTTP_LISTEN", "XDS_LISTEN"}},
}

// TestUnits has systemd check each unit, and starts what it would start, which tells systemd that it is ready.
func TestUnits(t *testing.T) {
	for _, u := range units {
		t.Run(u.file, func(t *testing.T) {
			text := strings.ReplaceAll(read(t, "systemd/"+u.file), "/usr/bin/"+u.program.Name, u.program.Binary(t))
			t.Run("verify", func(t *testing.T) {
				analyze := testkit.Need(t, testkit.SystemdAnalyze)
				run(t, t.TempDir(), analyze, "verify", "--man=no", testkit.Write(t, filepath.Join(t.TempDir(), u.file), text))
			})
			u.start(t, text)
		})
	}
}

func (u unit) start(t *testing.T, text string) {
	dir, err := os.MkdirTemp("", "units") // the path of a socket is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer manager.Close()

	words := strings.Fields(strings.ReplaceAll(directive(t, text, "ExecStart"), "/etc/sluice/", filepath.Join("..", "systemd")+"/"))
	env := []string{"NOTIFY_SOCKET=" + socket, strings.ReplaceAll(directive(t, text, "Environment"), "%S", dir)}
	for _, l := range u.listeners {
		env = append(env, "SLUICE_"+l+"=127.0.0.1:0")
	}
	started := u.program.Launch(t, env, words[1:]...)
	require.NoError(t, manager.SetReadDeadline(time.Now().Add(testkit.Patience)))
	message := make([]byte, 100)
	n, err := manager.Read(message)
	if err != nil || string(message[:n]) != "READY=1" || directive(t, text, "Type") != "notify" {
		t.Errorf("systemd gets %q, %v", message[:n], err)
	}
	if _, err := os.Stat(filepath.Join(dir, directive(t, text, "StateDirectory"))); err != nil {
		t.Errorf("its data is elsewhere: %v", err)
	}
	require.NoError(t, started.Process.Signal(syscall.SIGTERM))
	if _, stderr, status := started.Ended(t); status != 0 {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// directive is the value of the first line of a unit that sets one.
func directive(t *testing.T, text, name string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the unit has no %s", name)
	return ""
}

// TestSuggestedSettings: the settings that the files of the services suggest exist.
func TestSuggestedSettings(t *testing.T) {
	suggested := regexp.MustCompile(`(?m)^#([a-z-]+):`)
	for _, u := range units {
		known, found := flags(t, u.program.Binary(t)), suggested.FindAllStringSubmatch(read(t, "systemd/"+u.settings), -1)
		if len(found) == 0 {
			t.Errorf("%s suggests nothing", u.settings)
		}
		for _, setting := range found {
			if !slices.Contains(known, setting[1]) {
				t.Errorf("%s: there is no --%s", u.settings, setting[1])
			}
		}
	}
}
