package sluice

import (
	"io/fs"
	"testing"
)

// TestTopicsDiffer: no page hides another one of the same topic.
func TestTopicsDiffer(t *testing.T) {
	pathOf := map[string]string{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if first, taken := pathOf[topic(path)]; taken {
			t.Errorf("%s and %s are both %q", first, path, topic(path))
		}
		pathOf[topic(path)] = path
		return nil
	})
	if err != nil || len(Pages()) != len(pathOf) {
		t.Errorf("%d pages of %d files: %v", len(Pages()), len(pathOf), err)
	}
	for topic, path := range map[string]string{
		"readme": "README.md", "errors": "docs/reference/errors.md", "deploy": "deploy/README.md", "sidecar-api": "sidecar/API.md",
	} {
		if pathOf[topic] != path {
			t.Errorf("%q is %s, want %s", topic, pathOf[topic], path)
		}
	}
}
