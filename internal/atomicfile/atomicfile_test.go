package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestWriteAndRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"a longer text", "short", ""} {
		require.NoError(t, Write(path, []byte(content)))
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
	for range 2 {
		require.NoError(t, Remove(path))
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := Write(filepath.Join(path, "none", "file"), nil); err == nil {
		t.Error("a file in a folder that is not there was written")
	}
}
