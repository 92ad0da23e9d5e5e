// Testinputs builds the programs that tests start, and prints, for a shell to read, the variables
// by which go test knows what results depend on. Where a program cannot be built it says so and
// ends with an error; of that program no result is then cached.
package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/sluice-bus/sluice/test/testkit"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (err error) {
	set := func(name, digest string, failed error) {
		if err = errors.Join(err, failed); failed == nil {
			fmt.Printf("export %s=%s\n", testkit.InputVariable(name), digest)
		}
	}
	for _, p := range testkit.Programs {
		_, digest, failed := p.Update()
		set(p.Name, digest, failed)
	}
	for _, tool := range testkit.Tools {
		set(tool.Name(), digest(state(tool)), nil)
	}
	examples, failed := compiled("./examples/...")
	set("examples", digest(examples), failed)
	return err
}

// state says which file a tool is, and whether it was replaced.
func state(tool testkit.Tool) string {
	path, found := tool.Path()
	if !found {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(path, info.Size(), info.ModTime().UnixNano())
}

// compiled lists packages and all of their dependencies with their build ids, which tell what go
// run in a test will run.
func compiled(packages string) (string, error) {
	cmd := exec.Command("go", "list", "-trimpath", "-deps", "-export", "-f", "{{.ImportPath}} {{.BuildID}}", packages)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
