// Command release makes what a release consists of: archives, packages for Debian and RPM, images, the packages for npm and Helm, a
// list of what they are made of, where they come from, and checksums. The same commit makes the same bytes on every machine.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := flag.String("root", "../..", "the checkout")
	dist := flag.String("dist", "../../dist", "the folder to make; what is in it is removed")
	version := flag.String("version", "", "the version, like v1.2.3")
	platforms := flag.String("platforms", strings.Join(supported, " "), "what to build for")
	onlyImages := flag.Bool("images", false, "make the images alone, of any version and of changes that are not committed, too")
	flag.Parse()
	r, err := newRelease(ctx, *root, *dist, *version, strings.Fields(*platforms))
	if err == nil && !*onlyImages {
		err = r.check()
	}
	if err == nil {
		err = r.run(ctx, *onlyImages)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A platform is what Go calls GOOS and GOARCH.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var supported = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// A release is what is made of a checkout.
type release struct {
	root, dist string
	// work has what the files of dist are made of, and is removed.
	work      string
	version   string // v1.2.3
	commit    string
	modified  bool      // the checkout has changes that the commit lacks
	date      time.Time // of the commit, and of every file
	platforms []platform
	foreign   []string // variables with which programs for other machines are compiled
	// compression is the level of gzip and zip.
	compression int
	modules     []module // of others, linked into the programs
}

// number is the version as packages have it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

var versionForm = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func newRelease(ctx context.Context, root, dist, version string, platforms []string) (*release, error) {
	r := &release{version: version, compression: gzip.BestCompression}
	for _, name := range platforms {
		goos, arch, found := strings.Cut(name, "/")
		if !found {
			return nil, fmt.Errorf("the platform %q is not of the form linux/amd64", name)
		}
		r.platforms = append(r.platforms, platform{goos, arch})
	}
	var err error
	if r.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if r.dist, err = filepath.Abs(dist); err != nil {
		return nil, err
	}
	return r, r.readCommit(ctx)
}

// readCommit asks git what is released and of when it is.
func (r *release) readCommit(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		out, err := command(ctx, r.root, nil, "git", append([]string{"-c", "safe.directory=*"}, args...)...)
		return strings.TrimSpace(string(out)), err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	head, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, committed, _ := strings.Cut(head, " ")
	r.commit = commit
	if seconds == "" {
		seconds = committed
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.date = time.Unix(unix, 0).UTC()
	changes, err := git("status", "--porcelain")
	r.modified = changes != ""
	return err
}

// check refuses what others could not make again under this name.
func (r *release) check() error {
	switch {
	case !versionForm.MatchString(r.version):
		return fmt.Errorf("the version %q is not of the form v1.2.3 or v1.2.3-rc.1: make release VERSION=v1.2.3", r.version)
	case r.modified && !strings.HasSuffix(r.version, "-dirty"):
		return fmt.Errorf("the checkout has changes that are not committed: commit them, or try it with VERSION=%s-dirty", r.version)
	}
	return nil
}

// run makes the files of dist, in which nothing else is then.
func (r *release) run(ctx context.Context, onlyImages bool) (err error) {
	if r.work, err = os.MkdirTemp("", "sluice-release"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := errors.Join(os.RemoveAll(r.dist), os.MkdirAll(r.dist, 0o755)); err != nil {
		return err
	}
	steps := []func(context.Context) error{r.build, r.readModules, r.writeDocuments, r.makeImages}
	if !onlyImages {
		steps = append(steps, r.makeArchives, r.makePackages, r.makeNPM, r.makeChart, r.writeSBOM, r.writeProvenance, r.writeSums)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// build compiles the programs for each platform, and for this machine, which prints their manual pages and completion.
func (r *release) build(ctx context.Context) error {
	platforms := r.platforms
	if !slices.Contains(platforms, thisMachine) {
		platforms = append([]platform{thisMachine}, platforms...)
	}
	for _, p := range platforms {
		env := []string{"GOWORK=", "MAKEFLAGS=", "GOOS=" + p.os, "GOARCH=" + p.arch}
		if p != thisMachine {
			env = append(env, r.foreign...)
		}
		if _, err := command(ctx, r.root, env, "make", "build", "VERSION="+r.version, "BIN="+r.bin(p)+"/"); err != nil {
			return err
		}
	}
	return nil
}

var thisMachine = platform{runtime.GOOS, runtime.GOARCH}

// bin is the folder of the programs for a platform.
func (r *release) bin(p platform) string { return filepath.Join(r.work, "bin", p.os+"_"+p.arch) }

// programs are those of archives and packages.
var programs = []string{"sluice", "sluice-bench", "sluice-controlplane", "sluice-sidecar"}

// injector runs only in clusters, and is in the image of the control plane alone.
const injector = "sluice-injector"

// command runs a command in a folder, and returns what it prints. An error says what it complained of.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w\n%s%s", name, strings.Join(args, " "), dir, err, out, complaint.Bytes())
	}
	return out, nil
}
