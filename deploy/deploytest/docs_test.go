package deploytest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile(`\bTest\w+`)
	collName = regexp.MustCompile(`(?m)^\t[A-Z]\w+\s+= "(\w+)"`)
)

// TestDatabaseIsDescribed holds the page on MongoDB against the collections that the log makes; its
// own tests do so for the indexes.
func TestDatabaseIsDescribed(t *testing.T) {
	page := read(t, "mongodb.md")
	found := collName.FindAllStringSubmatch(read(t, "../sidecar/internal/eventlog/mongolog/core/collections.go"), -1)
	if len(found) < 5 {
		t.Errorf("collections.go names only %v", found)
	}
	for _, m := range found {
		if !strings.Contains(page, "`"+m[1]) { // collections of signals have a number behind
			t.Errorf("mongodb.md says nothing of %s", m[1])
		}
	}
}

// TestThreatsHaveTests looks for the tests that the threat model names.
func TestThreatsHaveTests(t *testing.T) {
	_, model, found := strings.Cut(read(t, "security.md"), "## Threat model\n")
	rows := testName.FindAllString(model, -1)
	if !found || len(rows) == 0 {
		t.Fatal("security.md has no threat model that names tests")
	}
	missing := map[string]bool{}
	for _, name := range rows {
		missing[name] = true
	}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for name := range missing {
			if strings.Contains(string(code), "\nfunc "+name+"(") {
				delete(missing, name)
			}
		}
		return err
	})
	if err != nil || len(missing) > 0 {
		t.Errorf("security.md names tests that do not exist: %v %v", missing, err)
	}
}
