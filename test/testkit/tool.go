package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// Tool is a program that not every machine has: its names, of which one is enough. The same names
// are in deploy/dev/deps.sh, which installs it.
type Tool string

// The tools that tests run beside Go and the programs of every Debian.
const (
	Curl       Tool = "curl"
	Node       Tool = "node nodejs"
	NPM        Tool = "npm"
	Chromium   Tool = "chromium-headless-shell chromium chromium-browser google-chrome" // the first has no windows to draw
	Prometheus Tool = "prometheus"
	Promtool   Tool = "promtool"
	OpenSSL    Tool = "openssl"

	SystemdAnalyze Tool = "systemd-analyze"
)

// Tools are all of them.
var Tools = []Tool{Curl, Node, NPM, Chromium, Prometheus, Promtool, OpenSSL, SystemdAnalyze}

// Path is where the tool is.
func (t Tool) Path() (path string, found bool) {
	for _, name := range strings.Fields(string(t)) {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// Name is the first of the tool's names.
func (t Tool) Name() string { return strings.Fields(string(t))[0] }

// Need returns the path of the tool, which becomes an input of the test's result. Without the tool,
// the test is skipped, or fails if no test may be skipped.
func Need(t testing.TB, tool Tool) string {
	t.Helper()
	if _, err := Input(tool.Name()); err != nil {
		t.Fatal(err)
	}
	if path, found := tool.Path(); found {
		return path
	}
	const missing = "this test needs %s, which is not in PATH: sudo make deps"
	if strict() {
		t.Fatalf(missing, tool.Name())
	}
	t.Skipf(missing, tool.Name())
	return ""
}

// strict reports whether a skipped test counts as failed: CI sets CI, and developers STRICT.
func strict() bool {
	for _, variable := range []string{"STRICT", "CI"} {
		switch os.Getenv(variable) {
		case "", "0", "false":
		default:
			return true
		}
	}
	return false
}

// Fill writes a file until there is no byte left on its disk.
func Fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for block := bytes.Repeat([]byte{1}, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// SmallDisk returns the folder of an empty disk of so many bytes, in memory, which is gone with the
// test. Only root may make one. A test that may not is skipped, like a test that lacks a tool.
func SmallDisk(t testing.TB, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=700", bytes), "tmpfs", dir).CombinedOutput()
	if err != nil {
		const cannot = "this test needs a disk of its own, which only root may mount: %v: %s"
		if strict() {
			t.Fatalf(cannot, err, out)
		}
		t.Skipf(cannot, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
	return dir
}
