// Package testenv leaves a test out where the machine lacks a tool that it runs, and says how to get it. Where nothing may
// be left out, in CI, the test fails instead. It does not know what tests do with a tool.
package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/testcache"
)

// Tool is a program that not every machine has: the names that it goes by, of which any will do. The same names are in
// deploy/dev/deps.sh, which installs it.
type Tool string

// What tests run beside Go and what a Debian has from the start.
const (
	Curl       Tool = "curl"
	Node       Tool = "node nodejs"
	NPM        Tool = "npm"
	Chromium   Tool = "chromium chromium-browser google-chrome"
	Prometheus Tool = "prometheus"
	Promtool   Tool = "promtool"
	OpenSSL    Tool = "openssl"
)

// Tools are all of them.
var Tools = []Tool{Curl, Node, NPM, Chromium, Prometheus, Promtool, OpenSSL}

// Path is where the tool is.
func (t Tool) Path() (path string, found bool) {
	for _, name := range strings.Fields(string(t)) {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// Input is the name under which testcache knows the tool.
func (t Tool) Input() string { return strings.Fields(string(t))[0] }

// Need returns the path of the tool, on which the test's result then depends. Where there is none, the test is skipped, or
// fails if nothing may be left out.
func Need(t testing.TB, tool Tool) string {
	t.Helper()
	if _, err := testcache.Input(tool.Input()); err != nil {
		t.Fatal(err)
	}
	if path, found := tool.Path(); found {
		return path
	}
	const missing = "this test needs %s, which is not in PATH: sudo make deps"
	if strict() {
		t.Fatalf(missing, tool.Input())
	}
	t.Skipf(missing, tool.Input())
	return ""
}

// strict tells whether a test that is left out counts as failed: CI sets CI, and people STRICT.
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
