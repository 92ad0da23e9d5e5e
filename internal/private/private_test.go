package private

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestTighten(t *testing.T) {
	dir, beside := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "beside")
	for path, mode := range map[string]os.FileMode{filepath.Join(dir, "db"): 0o755, dir: 0o777} {
		require.NoError(t, os.MkdirAll(path, mode))
	}
	for _, path := range []string{filepath.Join(dir, "db", "file"), filepath.Join(dir, "script"), beside} {
		require.NoError(t, os.WriteFile(path, nil, 0o755))
	}
	require.NoError(t, os.Symlink(beside, filepath.Join(dir, "link")))
	var told bytes.Buffer
	log := slog.New(slog.NewTextHandler(&told, nil))
	for range 2 {
		Tighten(log, dir)
	}
	for path, want := range map[string]os.FileMode{"": 0o700, "db": 0o700, "db/file": 0o700, "script": 0o700, "link": 0o755} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	Tighten(log, filepath.Join(dir, "none"))
	if got := told.String(); strings.Count(got, "level=INFO") != 1 || strings.Count(got, "level=WARN") != 1 {
		t.Errorf("told:\n%s", got)
	}
}
