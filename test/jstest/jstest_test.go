//go:build unix

// Package jstest runs the tests that are written in JavaScript, with the real sidecar: those of the package of sdk/js, which it
// builds, with a MongoDB server, and those of libraries of others.
package jstest

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// patience is what all of them together may take on a loaded machine.
const patience = 8 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests run on the package ws, and those that are about connections on the platform's own
// WebSocket, too, which Node.js 20 has behind a flag.
func TestPackage(t *testing.T) {
	node := testkit.Need(t, testkit.Node)
	dir := testkit.BuildJS(t)
	readAll(t, dir)
	readAll(t, filepath.Join(dir, "..", "testdata", "cases"))

	env := []string{"SLUICE_BIN=" + filepath.Dir(testkit.SidecarProgram.Binary(t))}
	server := mongotest.Shared(t)
	if server.Info().Has(mongotest.Transactions) {
		env = append(env, "MONGODB_URI="+server.URI(""))
	}
	tests, err := filepath.Glob(filepath.Join(dir, "test", "*.test.mjs"))
	require.NoError(t, err)
	for flag, files := range map[string][]string{
		"--no-experimental-websocket": tests,
		"--experimental-websocket":    {"test/bus.test.mjs", "test/cases.test.mjs", "test/faults.test.mjs"},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			run(t, dir, env, node, append([]string{flag, "--test", "--test-reporter=spec"}, files...)...)
		})
	}
}

// Libraries of others at a sidecar: Standard Webhooks' own verifies what is pushed (its Go library does so in the tests of package
// push), and CloudEvents' SDK publishes and reads.
func TestLibraries(t *testing.T) {
	node := testkit.Need(t, testkit.Node)
	dir, err := filepath.Abs("libraries")
	require.NoError(t, err)
	readAll(t, dir)
	testkit.NPMInstall(t, dir)
	run(t, dir, []string{"SLUICE_SIDECAR=" + testkit.SidecarProgram.Binary(t)}, node, "--test", "--test-reporter=spec")
}

func run(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	// Sidecars that the tests have started end with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	t.Logf("%s", out)
}

// readAll opens the files of a folder, so that go test runs the test again when one has changed.
func readAll(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		made := entry != nil && (entry.Name() == "node_modules" || entry.Name() == "dist")
		switch {
		case err != nil:
			return err
		case made && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		_, err = os.ReadFile(name)
		return err
	})
	require.NoError(t, err)
}
