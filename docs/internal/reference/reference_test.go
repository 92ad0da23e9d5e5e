package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const folder = "../../reference"

// TestPagesAreWhatTheProgramsSay: after a change of a setting, a metric, an error or a policy's field, make reference.
func TestPagesAreWhatTheProgramsSay(t *testing.T) {
	pages := Pages()
	for name, text := range pages {
		if page, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(page) != text {
			t.Errorf("docs/reference/%s is stale (%v): make reference", name, err)
		}
	}
	files, err := filepath.Glob(folder + "/*")
	if err != nil || len(files) != len(pages) {
		t.Errorf("docs/reference has %d files, and %d are made: %v", len(files), len(pages), err)
	}
}

// TestRowsAreComplete: each row says what it is about, what it takes, and what it means.
func TestRowsAreComplete(t *testing.T) {
	for name, text := range Pages() {
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.TrimSpace(strings.ReplaceAll(line, `\|`, "")), "|")
			if len(cells) < 3 || strings.HasSuffix(strings.TrimSpace(cells[1]), "---") {
				continue
			}
			if strings.TrimSpace(cells[1]) == "" || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[len(cells)-2]) == "" {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
