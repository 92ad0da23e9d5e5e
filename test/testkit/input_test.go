package testkit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// TestInput is about a module in a temporary folder: opening the real one's file would keep this
// result, too, from being cached.
func TestInput(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module m\n"), 0o600))
	below := filepath.Join(root, "a", "b")
	require.NoError(t, os.MkdirAll(below, 0o700))
	t.Chdir(below)
	t.Setenv("TESTINPUT_A_TOOL", "abc")
	if digest, err := Input("a-tool"); digest != "abc" || err != nil {
		t.Errorf("%q, %v", digest, err)
	}
	file := filepath.Join(root, BuildFolder, "never-cached")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the result is not cached, though the input is known: %v", err)
	}
	for range 2 {
		if digest, err := Input("another"); digest != "" || err != nil {
			t.Errorf("%q, %v", digest, err)
		}
		if info, err := os.Stat(file); err != nil || time.Until(info.ModTime()) < time.Hour {
			t.Errorf("the file that keeps the result from being cached: %v, %v", info, err)
		}
	}
}
