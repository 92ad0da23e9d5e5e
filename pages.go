// Package sluice has the pages of the repository, so that the command line prints them without a network. It is in the root, since a
// package embeds only what is below its folder.
package sluice

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed README.md docs/*.md docs/*/*.md bench/README.md sidecar/*.md controlplane/*.md deploy/*.md
var files embed.FS

// Pages returns the pages by their topics: docs/reference/errors.md is "errors", deploy/README.md is "deploy", sidecar/API.md is
// "sidecar-api".
func Pages() map[string]string {
	pages := map[string]string{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		text, err := files.ReadFile(name)
		pages[topic(name)] = string(text)
		return err
	})
	if err != nil {
		panic(err) // a defect: the pages are in the program
	}
	return pages
}

func topic(name string) string {
	folder, base := path.Base(path.Dir(name)), strings.TrimSuffix(path.Base(name), ".md")
	switch {
	case name == "README.md", base != strings.ToUpper(base):
		return strings.ToLower(base)
	case base == "README":
		return folder
	}
	return folder + "-" + strings.ToLower(base)
}
