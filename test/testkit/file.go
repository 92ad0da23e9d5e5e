package testkit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// Write puts a text into a file in one step, so that a program that watches the file reads the old text or the new one. It makes
// the file's folder, and returns the path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	return path
}
