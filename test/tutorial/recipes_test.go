//go:build unix

package tutorial

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/mongotest"
)

// TestRecipes runs the recipes, each beside a sidecar and a control plane as make run starts them, and names those that the list of
// recipes lacks.
func TestRecipes(t *testing.T) {
	t.Parallel()
	server := mongotest.Shared(t)
	list := read(t, "../../docs/recipes/README.md")
	names, err := filepath.Glob("../../docs/recipes/*.md")
	if err != nil || len(names) < 2 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		page, base := read(t, name), filepath.Base(name)
		if base == "README.md" {
			continue
		}
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			if lines := strings.Count(page, "\n"); lines > 60 {
				t.Errorf("%d lines; 60 are allowed", lines)
			}
			if !strings.Contains(list, "("+base+")") {
				t.Error("the list of recipes does not name it")
			}
			s := begin(t, page, "STORE="+server.URI(server.NewDatabase(t)))
			s.start(step{"sluice-controlplane --data-dir usual/controlplane", "{\"ready\":true,…}\n"})
			s.start(step{"sluice-sidecar --node-id usual --data-dir usual/sidecar --control-plane 127.0.0.1:18000", "{\"ready\":true,…}\n"})
			s.run(base, page)
		})
	}
}
