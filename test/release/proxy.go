package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A release is the modules of a checkout, as they will be tagged.
type release struct {
	root    string
	modules []releasedModule
}

// A releasedModule is one that go.work replaces by a folder of the checkout.
type releasedModule struct {
	module.Version
	folder string // relative to the root
}

// workspaces are the folders whose go.work names modules that are tagged.
var workspaces = []string{".", "sdk/adapters"}

// readRelease finds the modules of the checkout in its workspaces.
func readRelease(ctx context.Context, root string) (release, error) {
	r := release{root: root}
	for _, workspace := range workspaces {
		if err := r.readWorkspace(ctx, workspace); err != nil {
			return release{}, fmt.Errorf("read the go.work of %s: %w", workspace, err)
		}
	}
	return r, nil
}

func (r *release) readWorkspace(ctx context.Context, folder string) error {
	var work struct {
		Replace []struct {
			Old module.Version
			New struct{ Path string }
		}
	}
	out, err := run(ctx, r.root, nil, "go", "work", "edit", "-json", filepath.Join(folder, "go.work"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, &work); err != nil {
		return err
	}
	for _, replaced := range work.Replace {
		if strings.HasPrefix(replaced.New.Path, ".") && !r.has(replaced.Old.Path) {
			r.modules = append(r.modules, releasedModule{Version: replaced.Old, folder: filepath.Join(folder, replaced.New.Path)})
		}
	}
	return nil
}

// serve writes the modules into a folder, as a module proxy serves them: what a tag of this checkout would have, uncommitted
// changes included.
func (r release) serve(ctx context.Context, dir string) error {
	list, err := run(ctx, r.root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return fmt.Errorf("list the files of the checkout: %w", err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	for _, m := range r.modules {
		if err := r.serveModule(m, names, filepath.Join(dir, m.Path, "@v")); err != nil {
			return fmt.Errorf("serve %s: %w", m, err)
		}
	}
	return nil
}

func (r release) serveModule(m releasedModule, names []string, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	goMod, err := os.ReadFile(filepath.Join(r.root, m.folder, "go.mod"))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, m.Version, r.files(m, names)); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, m.Version.Version)
	for name, content := range map[string][]byte{
		"list":                      []byte(m.Version.Version + "\n"),
		m.Version.Version + ".info": []byte(info),
		m.Version.Version + ".mod":  goMod,
		m.Version.Version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// files are those in a module's folder. Package zip leaves out what is in a module below it.
func (r release) files(m releasedModule, names []string) (files []zip.File) {
	for _, name := range names {
		inside, err := filepath.Rel(m.folder, name)
		if err != nil || strings.HasPrefix(inside, "..") {
			continue
		}
		path := filepath.Join(r.root, name)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, file{name: filepath.ToSlash(inside), path: path})
		}
	}
	return files
}

// A file is one of a module's zip.
type file struct{ name, path string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }

// run runs a command in a folder, and returns what it prints. An error says what it complained of.
func run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w\n%s", name, strings.Join(args, " "), dir, err, complaint.Bytes())
	}
	return out, nil
}

func (r release) has(path string) bool {
	return slices.ContainsFunc(r.modules, func(m releasedModule) bool { return m.Path == path })
}

// version is that of all modules: they are tagged together.
func (r release) version() string { return r.modules[0].Version.Version }
