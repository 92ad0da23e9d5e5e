// Package testkit is what tests of several packages share: it starts the programs as operators do, on free ports, and ends
// them with the test; it asks them over HTTP as any client does; it repeats tests that are left to chance; and it knows which
// tools the machine has.
//
// It imports nothing of the servers, so that a mistake there cannot hide here.
package testkit

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// The programs that tests start.
var (
	SidecarProgram      = newProgram("./sidecar/cmd/sluice-sidecar")
	ControlPlaneProgram = newProgram("./controlplane/cmd/sluice-controlplane")
	ClientProgram       = newProgram("./sdk/cmd/sluice")
	MongoModelProgram   = newProgram("./test/mongomodel/cmd/mongomodel")
)

// Programs are all of them.
var Programs = []*Program{SidecarProgram, ControlPlaneProgram, ClientProgram, MongoModelProgram}

func newProgram(pkg string) *Program { return &Program{Name: path.Base(pkg), Package: pkg} }

// Program is one program of the module. It is safe for concurrent use.
type Program struct {
	Name    string // of the file
	Package string // as go build has it, seen from the module's root

	built sync.Once
	bin   string
	err   error
}

// Self is the test program itself, for tests whose TestMain runs another program if the arguments
// say so.
func Self() *Program {
	p := &Program{Name: "the test program"}
	p.built.Do(func() { p.bin, p.err = os.Executable() })
	return p
}

// Binary is the path of the program, which the first call builds if that is necessary.
func (p *Program) Binary(t testing.TB) string {
	t.Helper()
	p.built.Do(func() { p.bin, p.err = p.Build() })
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.bin
}

// Build returns the path of the program for a test, whose result depends on it. It uses the program
// that make test has built before the tests, else it builds the program.
func (p *Program) Build() (string, error) {
	digest, err := Input(p.Name)
	if err != nil {
		return "", err
	}
	if digest == "" {
		bin, _, err := p.Update()
		return bin, err
	}
	bin, err := p.path()
	if err == nil {
		_, err = os.Stat(bin) // go test looks whether it was replaced during the test
	}
	return bin, err
}

// Update builds the program if it is missing or out of date, and returns its path and digest. An
// unchanged file keeps its time. Concurrent processes build one after the other.
func (p *Program) Update() (bin, digest string, err error) {
	if bin, err = p.path(); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o777); err != nil {
		return "", "", err
	}
	unlock, err := lockFile(bin + ".lock")
	if err != nil {
		return "", "", err
	}
	defer unlock()

	before, _ := os.Stat(bin)
	old, _ := digestOf(bin) // of none, ""
	// The flags are those of make build: the tests run the shipped program, and what it has in common with them is compiled once.
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", bin, p.Package)
	cmd.Dir = filepath.Join(filepath.Dir(bin), "..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building %s: %w\n%s", p.Name, err, out)
	}
	if digest, err = digestOf(bin); err == nil && digest == old {
		err = os.Chtimes(bin, before.ModTime(), before.ModTime()) // which go build has set
	}
	return bin, digest, err
}

func (p *Program) path() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, BuildFolder, p.Name)
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	return bin, nil
}

func digestOf(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// Parallel lets twice as many tests run at once as there are processors, since tests of processes mostly wait. It is for a
// TestMain; -parallel on the command line takes precedence.
func Parallel() {
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}
