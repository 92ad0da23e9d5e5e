package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	message = regexp.MustCompile("(?m)^### `(.+)`$")
	joined  = regexp.MustCompile("\" \\+\\s*\"|`|\\\\")
	hole    = regexp.MustCompile(`%[.\d]*[a-z]`)
)

// TestMessagesExist: each message that the page on troubleshooting quotes is one of the programs'.
func TestMessagesExist(t *testing.T) {
	page, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, folder := range []string{"sidecar", "controlplane", "internal", "sdk"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.WriteString(hole.ReplaceAllString(joined.ReplaceAllString(string(text), ""), "…"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	quoted := message.FindAllStringSubmatch(string(page), -1)
	for _, m := range quoted {
		for part := range strings.SplitSeq(m[1], "…") {
			if part = strings.TrimSpace(part); !strings.Contains(code.String(), part) {
				t.Errorf("nobody writes %q", part)
			}
		}
	}
	if len(quoted) < 40 {
		t.Errorf("only %d messages are quoted", len(quoted))
	}
}
