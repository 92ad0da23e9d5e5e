// Package processtest runs the module's own programs in tests as operators do: built once, started,
// waited for until they are ready, stopped or killed by the test. It must not know the programs'
// purposes.
//
// It builds them in a folder of the module that all test processes share: linking takes seconds,
// and detecting that nothing has changed a third of one.
package processtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/test/testenv"
)

// Program is one program of the module. It is safe for concurrent use.
type Program struct {
	Name    string // of the file
	Package string // as go build has it, seen from the module's root
	Flags   []string
	Env     []string // further variables

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
	digest, err := testenv.Input(p.Name)
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
	cmd := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-o", bin}, p.Flags...), p.Package)...)
	cmd.Dir = filepath.Join(filepath.Dir(bin), "..", "..")
	cmd.Env = append(os.Environ(), p.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building %s: %w\n%s", p.Name, err, out)
	}
	if digest, err = digestOf(bin); err == nil && digest == old {
		err = os.Chtimes(bin, before.ModTime(), before.ModTime()) // which go build has set
	}
	return bin, digest, err
}

func (p *Program) path() (string, error) {
	root, err := testenv.Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, testenv.Folder, p.Name)
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
