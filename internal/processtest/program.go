// Package processtest runs the module's own programs in tests as operators do:
// built once, started, waited for until they are ready, stopped or killed by the
// test. It must not know what any of them does.
package processtest

import (
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
