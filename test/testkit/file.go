package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// Write puts a text into a file in one step, so that a program that watches the file reads the old text or the new one. It makes
// the file's folder, and returns the path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}
