// Package docs holds the links of all pages of the repository. It has nothing but tests; the pages beside it are for users.
package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

var (
	linkTo  = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?\s*\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inline  = regexp.MustCompile("`[^`\n]*`")
	mark    = regexp.MustCompile(`[^\pL\pN _-]`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// pages are the Markdown files of the repository, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".sluice", "bin", "dist", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case filepath.Ext(path) != ".md" || !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		found[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil || len(found) < 30 {
		t.Fatalf("%d pages: %v", len(found), err)
	}
	return found
}

// anchors are what a page's headings are called in links, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(linked.ReplaceAllString(m[1], "$1"))
		name := strings.ReplaceAll(mark.ReplaceAllString(text, ""), " ", "-")
		for unique, n := name, 1; ; n++ {
			if !found[unique] {
				found[unique] = true
				break
			}
			unique = name + "-" + string(rune('0'+n))
		}
	}
	return found
}

// TestLinksLeadSomewhere: each link of each page names a file that exists, and a heading that it has. Of links to other sites only the
// form is checked: there is no network here.
func TestLinksLeadSomewhere(t *testing.T) {
	all, links := pages(t), 0
	for name, text := range all {
		for _, m := range linkTo.FindAllStringSubmatch(inline.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			links++
			to, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
				continue
			}
			if to.Scheme != "" {
				if (to.Scheme != "https" && to.Scheme != "http") || to.Host == "" {
					t.Errorf("%s: %s is no link to a site", name, m[1])
				}
				continue
			}
			target := name
			if to.Path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), to.Path))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			} else if to.Fragment != "" && filepath.Ext(target) == ".md" && !anchors(all[target])[to.Fragment] {
				t.Errorf("%s: %s: the page has no such heading", name, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}
