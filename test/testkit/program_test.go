package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

func TestBuildsOnceAndSaysWhyNot(t *testing.T) {
	p := newProgram("./test/testkit/testdata/hello")
	bin, err := p.path()
	require.NoError(t, err)
	t.Cleanup(func() {
		os.Remove(bin)
		os.Remove(bin + ".lock")
	})
	built, digest, err := p.Update()
	if err != nil || built != bin || digest == "" {
		t.Fatalf("%q, %q, %v", built, digest, err)
	}
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(bin, past, past))
	before, err := os.Stat(bin)
	require.NoError(t, err)
	if _, again, err := p.Update(); err != nil || again != digest {
		t.Errorf("built again: %q, %v; want %q", again, err, digest)
	}
	after, err := os.Stat(bin)
	if err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(past) {
		t.Errorf("it was built again, or its time was changed, though nothing else has: %v, %v", after, err)
	}
	p.Package = "./test/testkit/testdata/nothing"
	if _, _, err := p.Update(); err == nil || !strings.Contains(err.Error(), p.Name) {
		t.Errorf("a package that is not there: %v", err)
	}
	// A test takes what was built before it, and does not build.
	t.Setenv(InputVariable(p.Name), digest)
	if built, err := p.Build(); err != nil || built != bin {
		t.Errorf("built before: %q, %v", built, err)
	}
	require.NoError(t, os.Remove(bin))
	if _, err := p.Build(); !os.IsNotExist(err) {
		t.Errorf("built before and removed: %v", err)
	}
}

// TestProgramsHaveNamesOfTheirOwn, since files and variables are named after them.
func TestProgramsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Programs {
		if seen[p.Name] || p.Name != filepath.Base(p.Name) {
			t.Errorf("%q is taken, or no name of a file", p.Name)
		}
		seen[p.Name] = true
	}
}
