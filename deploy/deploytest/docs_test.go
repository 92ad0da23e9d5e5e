package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)#:]+)[^)]*\)`)
	collName = regexp.MustCompile(`(?m)^\t\w+Name\s+= "(\w+)"`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range []string{"README.md", "mongodb.md"} {
		links := link.FindAllStringSubmatch(read(t, page), -1)
		if len(links) == 0 {
			t.Errorf("%s has no links", page)
		}
		for _, l := range links {
			if _, err := os.Stat(filepath.Join("..", l[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// TestDatabaseIsDescribed holds the page on MongoDB against the collections that
// the log makes; its own tests do so for the indexes.
func TestDatabaseIsDescribed(t *testing.T) {
	page := read(t, "mongodb.md")
	found := collName.FindAllStringSubmatch(read(t, "../sidecar/internal/eventlog/mongolog/collections.go"), -1)
	if len(found) < 5 {
		t.Errorf("collections.go names only %v", found)
	}
	for _, m := range found {
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("mongodb.md says nothing of %s", m[1])
		}
	}
}
