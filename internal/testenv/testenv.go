// Package testenv leaves a test out where the machine lacks a tool that it runs, and says how to get it. Where nothing may
// be left out, in CI, the test fails instead. It does not know what tests do with a tool.
package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
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

// Need returns the path of the tool. Where there is none, the test is skipped, or fails if nothing may be left out.
func Need(t testing.TB, tool Tool) string {
	t.Helper()
	names := strings.Fields(string(tool))
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "this test needs %s, which is not in PATH: sudo make deps"
	if strict() {
		t.Fatalf(missing, names[0])
	}
	t.Skipf(missing, names[0])
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
