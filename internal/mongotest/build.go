package mongotest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// slowBuild is how long an up to date server may take before the log says that it was built.
const slowBuild = 5 * time.Second

// Binary returns the path of the server program, which it builds where that is missing or out of date: about a minute the
// first time on a machine, a third of a second when there is nothing to do. Test processes that come together build once.
var Binary = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin", "mongotest-server")
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o777); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(root, "bin", ".mongotest-server.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()

	if _, err := os.Stat(bin); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "mongotest: building the MongoDB test server, which takes about a minute the first time (make test-server)")
	}
	begin := time.Now()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "ferretdb_no_postgresql", "-ldflags", "-s -w", "-o", bin, ".")
	cmd.Dir = filepath.Join(root, serverFolder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the MongoDB test server in %s: %w\n%s", serverFolder, err, out)
	}
	if took := time.Since(begin); took > slowBuild {
		fmt.Fprintf(os.Stderr, "mongotest: built the MongoDB test server in %v\n", took.Round(time.Second))
	}
	return bin, nil
})

var serverFolder = filepath.Join("internal", "mongotest", "server")

// moduleRoot looks for Sluice's module upwards from the test's folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, serverFolder, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no folder above the test's has %s: the MongoDB test server is built from source", serverFolder)
		}
		dir = parent
	}
}
