// Package browsertest uses the console in a real browser, as people do. Run runs one of its scripts,
// which know only the URL of a control plane.
package browsertest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// browserTimeout is what a loaded machine may take.
const browserTimeout = 8 * time.Minute

// Target has the control planes that the script uses.
type Target struct {
	// Script is the file to run; "" is console.mjs.
	Script string
	// URL is a control plane without authentication.
	URL string
	// Topic is a topic in use there, with well above 20 events/s, of which a rate of 100 for each
	// sidecar refuses some.
	Topic string
	// AuthURL is a control plane that needs tokens, with the same topic.
	AuthURL, ViewerToken, AdminToken string
	// Env has further variables of the script, NAME=VALUE.
	Env []string
	// Shots is the folder of the screenshots, below that of the variable CONSOLE_SHOTS; without it there are none.
	Shots string
	// Only is a regular expression of the tests that run; "" runs all.
	Only string
}

// Run runs the script, and fails the test if the script fails. Without a browser the test is
// skipped.
func Run(t testing.TB, target Target) {
	t.Helper()
	node := testkit.Need(t, testkit.Node)
	chromium := testkit.Need(t, testkit.Chromium)
	root, err := testkit.Root()
	require.NoError(t, err)
	dir := filepath.Join(root, "test", "browsertest")
	testkit.NPMInstall(t, dir)

	shots := os.Getenv("CONSOLE_SHOTS")
	if shots != "" {
		shots = filepath.Join(shots, target.Shots)
	}
	ctx, cancel := context.WithTimeout(context.Background(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test-reporter=spec", "--test-name-pattern="+cmp.Or(target.Only, "."),
		cmp.Or(target.Script, "console.mjs"))
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), target.Env...), "CHROMIUM="+chromium, "CONSOLE_URL="+target.URL, "CONSOLE_TOPIC="+target.Topic,
		"CONSOLE_AUTH_URL="+target.AuthURL, "CONSOLE_VIEWER_TOKEN="+target.ViewerToken, "CONSOLE_ADMIN_TOKEN="+target.AdminToken,
		"CONSOLE_SHOTS="+shots)
	if testing.Short() && shots == "" {
		cmd.Env = append(cmd.Env, fmt.Sprint("CONSOLE_HALF=", testkit.Seed(t)%2))
	}
	// The script ends its browser when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the console in a browser: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}
