package testbuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuildsOnceAndSaysWhyNot(t *testing.T) {
	missing := 0
	p := Program{Name: "testbuild-self", Package: "./internal/testbuild/testdata/hello", Missing: func() { missing++ }}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, folder, p.Name)
	t.Cleanup(func() {
		os.Remove(bin)
		os.Remove(bin + ".lock")
	})
	var before os.FileInfo
	for range 2 {
		got, err := p.Build()
		if err != nil || got != bin {
			t.Fatalf("%q, %v", got, err)
		}
		after, err := os.Stat(bin)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !os.SameFile(before, after) {
			t.Error("it was built again, though nothing has changed")
		}
		before = after
	}
	if missing != 1 {
		t.Errorf("it was missing %d times, want 1", missing)
	}
	p.Package = "./internal/testbuild/testdata/nothing"
	if _, err := p.Build(); err == nil || !strings.Contains(err.Error(), p.Name) {
		t.Errorf("a package that is not there: %v", err)
	}
}
