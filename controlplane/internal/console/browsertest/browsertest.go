// Package browsertest uses the console in a real browser, as people do. The
// script, console.mjs, knows a control plane by its URL alone; Run runs it.
package browsertest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/testenv"
)

// Bounds on what a loaded machine may take.
const (
	installTimeout = 3 * time.Minute
	browserTimeout = 8 * time.Minute
)

// Target is what the console is used with.
type Target struct {
	// URL is a control plane where everybody may do everything.
	URL string
	// Topic is one in use there, by well more than 20 events/s, and by so many
	// that with a rate of 100 for each sidecar some are refused.
	Topic string
	// AuthURL is a control plane that asks for tokens, and which has the same
	// topic.
	AuthURL, ViewerToken, AdminToken string
	// Shots is the folder below out that the screenshots go to.
	Shots string
	// Only is a regular expression of the tests that run; "" runs all.
	Only string
}

// Run fails the test if something about the console does. Without a browser to
// look at it with, the test is left out.
func Run(t testing.TB, target Target) {
	t.Helper()
	node := testenv.Need(t, testenv.Node)
	chromium := testenv.Need(t, testenv.Chromium)
	dir := folder(t)
	install(t, dir)

	ctx, cancel := context.WithTimeout(context.Background(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test-reporter=spec", "--test-name-pattern="+cmp.Or(target.Only, "."), "console.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CHROMIUM="+chromium, "CONSOLE_URL="+target.URL, "CONSOLE_TOPIC="+target.Topic,
		"CONSOLE_AUTH_URL="+target.AuthURL, "CONSOLE_VIEWER_TOKEN="+target.ViewerToken, "CONSOLE_ADMIN_TOKEN="+target.AdminToken,
		"CONSOLE_SHOTS="+filepath.Join("out", target.Shots))
	// The script ends its browser when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the console in a browser: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// folder is this package's, looked for upwards from the test's.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		here := filepath.Join(at, "controlplane", "internal", "console", "browsertest")
		if _, err := os.Stat(filepath.Join(here, "console.mjs")); err == nil {
			return here
		}
		if at == filepath.Dir(at) {
			t.Fatalf("no folder above %s has the console's test", dir)
		}
	}
}

// installed is written into node_modules by the one who has filled it: the
// package-lock.json that it was filled by.
const installed = ".package-lock-installed.json"

// install puts what package-lock.json names into node_modules, unless that was
// done already. It does so beside it first, since tests of several packages may
// come at once.
func install(t testing.TB, dir string) {
	t.Helper()
	lock := read(t, filepath.Join(dir, "package-lock.json"))
	modules := filepath.Join(dir, "node_modules")
	done := func() bool {
		got, err := os.ReadFile(filepath.Join(modules, installed))
		return err == nil && string(got) == string(lock)
	}
	if done() {
		return
	}
	npm := testenv.Need(t, testenv.NPM)
	beside, err := os.MkdirTemp(dir, "node_modules.")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(beside)
	write(t, filepath.Join(beside, "package-lock.json"), lock)
	write(t, filepath.Join(beside, "package.json"), read(t, filepath.Join(dir, "package.json")))
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = beside
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci, which needs the registry the first time: %v\n%s", err, out)
	}
	write(t, filepath.Join(beside, "node_modules", installed), lock)
	if done() {
		return // another test process has installed it
	}
	if err := os.RemoveAll(modules); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(beside, "node_modules"), modules); err != nil && !(errors.Is(err, os.ErrExist) && done()) {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}
