package arch

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// TestNothingIsHalfMerged: no text has the marks of a merge that nobody has finished.
func TestNothingIsHalfMerged(t *testing.T) {
	texts := []string{".go", ".md", ".mod", ".yaml", ".yml", ".json", ".sh", ".js", ".html", ".css", ".proto", ""}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".sluice", "bin", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !entry.Type().IsRegular() || !slices.Contains(texts, path.Ext(name)):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		for _, mark := range []string{"<<<<<<< ", ">>>>>>> "} {
			if bytes.HasPrefix(text, []byte(mark)) || bytes.Contains(text, []byte("\n"+mark)) {
				t.Errorf("%s has a line that begins with %q", name, mark)
			}
		}
		return err
	})
	require.NoError(t, err)
}
