// Command release tidies the modules of this repository, and checks that people can fetch them. Both need the modules as they
// will be tagged: it serves those of the checkout from a folder, as a module proxy does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runCommand(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, release, goCommand) error{"check": check, "tidy": tidy}
	if len(args) != 1 || commands[args[0]] == nil {
		return errors.New("usage: release check|tidy, in the root of the checkout")
	}
	dir, err := os.MkdirTemp("", "sluice-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	r, err := readRelease(ctx, root)
	if err != nil {
		return err
	}
	proxy := filepath.Join(dir, "proxy")
	if err := r.serve(ctx, proxy); err != nil {
		return err
	}
	g, err := newGoCommand(ctx, dir, proxy)
	if err != nil {
		return err
	}
	return commands[args[0]](ctx, r, g)
}

// A goCommand runs the go command as somebody does who has nothing of this repository but what the proxy serves.
type goCommand struct{ env []string }

// newGoCommand keeps what is fetched apart from the user's module cache, in which v0.1.0 would then be this checkout. Modules of
// others come from there where it has them.
func newGoCommand(ctx context.Context, dir, proxy string) (goCommand, error) {
	out, err := run(ctx, dir, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return goCommand{}, err
	}
	settings := strings.Split(strings.TrimSpace(string(out)), "\n")
	return goCommand{env: []string{
		"GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOBIN=" + filepath.Join(dir, "bin"),
		"GOMODCACHE=" + filepath.Join(dir, "modules"), "GONOSUMDB=github.com/sluice-bus",
		"GOPROXY=file://" + proxy + ",file://" + settings[0] + "/cache/download," + settings[1],
	}}, nil
}

func (g goCommand) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	return run(ctx, dir, g.env, "go", args...)
}

// peers is a module that is not tagged, and requires those that are.
const peers = "bench/peers"

// tidy makes the go.mod and the go.sum of each module what its packages and tests need. The sums of this repository's own modules
// are left out: they are those of a tag, not of a checkout.
func tidy(ctx context.Context, r release, g goCommand) error {
	folders := []string{peers}
	for _, m := range r.modules {
		folders = append(folders, m.folder)
	}
	for _, folder := range folders {
		dir := filepath.Join(r.root, folder)
		if _, err := g.run(ctx, dir, "mod", "tidy"); err != nil {
			return err
		}
		if err := dropSums(filepath.Join(dir, "go.sum"), r); err != nil {
			return err
		}
	}
	return nil
}

func dropSums(name string, r release) error {
	sums, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(sums)) {
		path, _, _ := strings.Cut(line, " ")
		if !r.has(path) {
			kept.WriteString(line)
		}
	}
	return os.WriteFile(name, []byte(kept.String()), 0o644)
}
