package testkit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// npmTimeout is how long npm may take on a loaded machine.
const npmTimeout = 5 * time.Minute

// BuildJS builds the package of sdk/js, and returns its folder. Tests of several packages may call
// it at the same time.
func BuildJS(t testing.TB) (dir string) {
	t.Helper()
	root, err := Root()
	require.NoError(t, err)
	dir = filepath.Join(root, "sdk", "js")
	NPMInstall(t, dir)
	unlock, err := lockFile(filepath.Join(dir, "node_modules.lock"))
	require.NoError(t, err)
	defer unlock()
	sources := sha256.New()
	for _, pattern := range []string{"package*.json", "tsconfig.json", "build.mjs", "src/*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			fmt.Fprintf(sources, "%s %d\n%s", name, len(text), text)
		}
	}
	of := filepath.Join(dir, "dist", ".sources")
	digest := fmt.Sprintf("%x", sources.Sum(nil))
	if built, err := os.ReadFile(of); err == nil && string(built) == digest {
		return dir
	}
	npmRun(t, dir, Need(t, Node), "build.mjs")
	require.NoError(t, os.WriteFile(of, []byte(digest), 0o666))
	return dir
}

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
	npmRun(t, dir, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund") // needs the registry the first time
	require.NoError(t, os.WriteFile(installed, lock, 0o666))
}

func npmRun(t testing.TB, dir, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), npmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v in %s: %v\n%s", cmd.Args, dir, err, out)
	}
}
