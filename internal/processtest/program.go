// Package processtest runs the module's own programs in tests as operators do:
// built once, started, waited for until they are ready, stopped or killed by the
// test. It must not know what any of them does.
package processtest

import (
	"os"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/internal/testbuild"
)

// Program is one program of the module. It is safe for concurrent use.
type Program struct {
	name  string
	build func() (string, error)
}

// New makes a program ready to be built.
func New(p testbuild.Program) *Program {
	return &Program{name: p.Name, build: sync.OnceValues(p.Build)}
}

// Self is the test program itself, for tests whose TestMain is another program where the arguments say so.
func Self() *Program { return &Program{name: "the test program", build: os.Executable} }

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
