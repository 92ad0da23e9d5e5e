// Package testbuild builds the programs that tests start, in a folder of the
// module that all test processes share: linking takes seconds, and finding out
// that nothing has changed a third of one. It must not know what is built.
package testbuild

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// folder is where the programs are, below the module's root.
var folder = filepath.Join("bin", "test")

// Program is what to build.
type Program struct {
	Name    string // of the file
	Package string // as go build has it, seen from Dir
	Dir     string // below the module's root; "": the root
	Flags   []string
	Env     []string // further variables
	// Missing is called before a build of which there is no earlier result.
	Missing func()
}

// Build returns the path of the program, which it builds where that is missing
// or out of date. Test processes that come together build one after the other.
func (p Program) Build() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, folder, p.Name)
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o777); err != nil {
		return "", err
	}
	unlock, err := lockFile(bin + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	if _, err := os.Stat(bin); err != nil && p.Missing != nil {
		p.Missing()
	}
	cmd := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-o", bin}, p.Flags...), p.Package)...)
	cmd.Dir = filepath.Join(root, p.Dir)
	cmd.Env = append(os.Environ(), p.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", p.Name, err, out)
	}
	return bin, nil
}

// moduleRoot is the folder of the go.mod that the test belongs to.
var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	file := string(bytes.TrimSpace(out))
	if filepath.Base(file) != "go.mod" {
		return "", fmt.Errorf("looking for the module: the test's folder belongs to none (%s)", file)
	}
	return filepath.Dir(file), nil
})
