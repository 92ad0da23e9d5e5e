package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// apart are the modules that the workspace leaves out, since what they need is large, or old, and for them
// alone.
var apart = []string{
	"bench/peers", "deploy/deploytest/schema", "deploy/release", "sdk/adapters/sluicepubsub", "sdk/adapters/sluicewatermill", "test/dapr",
}

// workspace returns the folders of the modules that go.work uses.
func workspace(t *testing.T, root fs.FS) (folders []string) {
	t.Helper()
	for _, words := range directives(t, root, "go.work") {
		if words[0] == "use" {
			folders = append(folders, path.Clean(words[1]))
		}
	}
	return folders
}

// directives returns the lines of a go.mod or go.work as words, those of a block with its verb
// before them.
func directives(t *testing.T, root fs.FS, name string) (lines [][]string) {
	t.Helper()
	text, err := fs.ReadFile(root, name)
	require.NoError(t, err)
	block := ""
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "//":
		case words[0] == ")":
			block = ""
		case words[len(words)-1] == "(":
			block = words[0]
		case block != "":
			lines = append(lines, append([]string{block}, words...))
		default:
			lines = append(lines, words)
		}
	}
	return lines
}

// requirements returns what a module requires: the versions by path, and whether its own packages
// import it.
func requirements(t *testing.T, root fs.FS, folder string) (versions map[string]string, direct map[string]bool) {
	t.Helper()
	versions, direct = map[string]string{}, map[string]bool{}
	for _, words := range directives(t, root, path.Join(folder, "go.mod")) {
		if words[0] == "require" {
			versions[words[1]] = words[2]
			direct[words[1]] = !slices.Contains(words, "indirect")
		}
	}
	return versions, direct
}

// TestTheSDKBringsLittle: an application that imports the SDK gets no other modules than these, and
// no newer versions of those that it has. A test of the SDK that needs more is one of test/sdk: what
// tests need is required of applications too.
func TestTheSDKBringsLittle(t *testing.T) {
	root := os.DirFS("../..")
	versions, _ := requirements(t, root, "sdk")
	for name := range versions {
		if name != "github.com/coder/websocket" && name != "github.com/google/uuid" {
			t.Errorf("sdk/go.mod requires %s", name)
		}
	}
	for _, words := range directives(t, root, "sdk/go.mod") {
		if words[0] == "go" && words[1] != "1.24" || words[0] == "toolchain" {
			t.Errorf("sdk/go.mod says %q", words)
		}
	}
	versions, _ = requirements(t, root, "sdk/mongo")
	for name := range versions {
		if strings.HasPrefix(name, "google.golang.org/") || name == module {
			t.Errorf("sdk/mongo/go.mod requires %s", name)
		}
	}
}

// TestModulesAgree: each module is one of the workspace, people can fetch it, and it is built by
// itself with what it is built with there.
func TestModulesAgree(t *testing.T) {
	root := os.DirFS("../..")
	folders := workspace(t, root)
	released := map[string]string{} // the versions, by the module's path
	for _, words := range directives(t, root, "go.work") {
		if words[0] == "replace" && strings.HasPrefix(words[4], ".") {
			released[words[1]] = words[2]
			if own := path.Join(module, words[4]); words[1] != own {
				t.Errorf("go.work replaces %s by %s", words[1], words[4])
			}
		}
	}
	all, _ := requirements(t, root, ".")
	for _, folder := range folders {
		if released[path.Join(module, folder)] == "" {
			t.Errorf("go.work replaces no version by ./%s", folder)
		}
		for _, words := range directives(t, root, path.Join(folder, "go.mod")) {
			if words[0] == "replace" || words[0] == "exclude" {
				t.Errorf("%s/go.mod says %q, which keeps people from installing its programs", folder, words)
			}
		}
		versions, direct := requirements(t, root, folder)
		for name, version := range versions {
			want := all[name]
			if name == module || strings.HasPrefix(name, module+"/") {
				want = released[name]
			}
			if direct[name] && version != want {
				t.Errorf("%s/go.mod requires %s %s, want %q", folder, name, version, want)
			}
		}
	}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if folder := path.Dir(name); err == nil && path.Base(name) == "go.mod" && !slices.Contains(folders, folder) &&
			!slices.Contains(apart, folder) {
			t.Errorf("go.work does not use %s", folder)
		}
		return err
	})
	require.NoError(t, err)
}

// TestTheSDKIsSmall: what an application needs is in few names. Options of subscriptions and
// publishers are package option's, administration is package admin's, and the contract's types are
// package wire's.
func TestTheSDKIsSmall(t *testing.T) {
	const most = 60
	files, err := filepath.Glob("../../sdk/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var names []string
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, id.Name)
			}
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil {
					add(decl.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						add(spec.Names...)
					}
				}
			}
		}
	}
	if len(names) > most {
		slices.Sort(names)
		t.Errorf("package sluice has %d exported names, and may have %d: %s", len(names), most, strings.Join(names, " "))
	}
}
