package browsertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Bounds on what a loaded machine may take.
const (
	installTimeout = 3 * time.Minute
	browserTimeout = 8 * time.Minute
)

// TestConsole lets console.mjs use the console as people do.
func TestConsole(t *testing.T) {
	node := find(t, "Node.js 20 or later", "nodejs", "node")
	chromium := find(t, "a Chromium browser", "chromium", "chromium", "chromium-browser", "google-chrome")
	install(t)

	open := startControlPlane(t, everybody{})
	closed := startControlPlane(t, tokens{"view-token": "viewer", "edit-token": "editor", "admin-token": "admin"})
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=spec", "console.mjs")
	cmd.Env = append(os.Environ(), "CHROMIUM="+chromium, "CONSOLE_URL="+open, "CONSOLE_TOPIC=orders.created",
		"CONSOLE_AUTH_URL="+closed, "CONSOLE_VIEWER_TOKEN=view-token", "CONSOLE_ADMIN_TOKEN=admin-token")
	cmd.WaitDelay = 10 * time.Second // the browser ends with its script
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// find returns the path of a program that goes by one of several names. A test
// that cannot run has failed: the console is not done before it was looked at.
func find(t *testing.T, what, debian string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("the console's test needs %s in PATH (%s); on Debian: apt-get install %s", what, strings.Join(names, ", "), debian)
	return ""
}

// install puts what package-lock.json names into node_modules, unless that was
// done already.
func install(t *testing.T) {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	want := hex.EncodeToString(sum[:])
	stamp := filepath.Join("node_modules", ".installed")
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return
	}
	npm := find(t, "npm", "npm", "npm")
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci, which needs the registry the first time: %v\n%s", err, out)
	}
	if err := os.WriteFile(stamp, fmt.Append(nil, want), 0o666); err != nil {
		t.Fatal(err)
	}
}
