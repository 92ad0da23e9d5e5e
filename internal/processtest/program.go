// Package processtest runs the module's own programs in tests as operators do:
// built once, started, waited for until they are ready, stopped or killed by the
// test. It must not know what any of them does.
package processtest

import (
	"path"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/internal/testbuild"
)

// Program is one program of the module. It is safe for concurrent use.
type Program struct {
	pkg   string
	build func() (string, error)
}

// New names a program by the import path of its package.
func New(pkg string) *Program {
	return &Program{pkg: pkg, build: sync.OnceValues(testbuild.Program{
		Name: path.Base(pkg), Package: pkg,
		// As make build has it: what is shipped is what is tested, and compiled once.
		Flags: []string{"-trimpath", "-ldflags", "-s -w"}, Env: []string{"CGO_ENABLED=0"},
	}.Build)}
}

// Binary is the path of the program, which the first call builds if that is
// necessary.
func (p *Program) Binary(t testing.TB) string {
	t.Helper()
	bin, err := p.build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}
