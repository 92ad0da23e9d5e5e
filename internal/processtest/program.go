// Package processtest runs the module's own programs in tests as operators do:
// built once per test binary, started, waited for until they are ready, stopped
// or killed by the test. It must not know what any of them does.
package processtest

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"
)

// Program is one program of the module. It is safe for concurrent use.
type Program struct {
	pkg string

	mu    sync.Mutex
	built bool
	bin   string
	err   error
}

// New names a program by the import path of its package.
func New(pkg string) *Program { return &Program{pkg: pkg} }

// Binary is the path of the program, which the first call builds.
func (p *Program) Binary(t testing.TB) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.built {
		p.built = true
		p.bin, p.err = build(p.pkg)
	}
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.bin
}

func build(pkg string) (string, error) {
	name := path.Base(pkg)
	dir, err := os.MkdirTemp("", name+"-test-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return bin, nil
}

// Cleanup removes what was built. TestMain calls it at the end.
func (p *Program) Cleanup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bin != "" {
		os.RemoveAll(filepath.Dir(p.bin))
	}
}
