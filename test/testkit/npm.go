package testkit

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// npmTimeout is how long npm may take on a loaded machine.
const npmTimeout = 5 * time.Minute

// NPMInstall puts the packages of a folder's package-lock.json into its node_modules, unless they
// are there. Tests of several packages may call it at the same time.
func NPMInstall(t testing.TB, dir string) {
	t.Helper()
	npm := Need(t, NPM)
	unlock, err := lockFile(filepath.Join(dir, "node_modules.lock"))
	require.NoError(t, err)
	defer unlock()
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	require.NoError(t, err)
	installed := filepath.Join(dir, "node_modules", ".package-lock-installed.json")
	if got, err := os.ReadFile(installed); err == nil && bytes.Equal(got, lock) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), npmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci in %s, which needs the registry the first time: %v\n%s", dir, err, out)
	}
	require.NoError(t, os.WriteFile(installed, lock, 0o666))
}
