package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const (
	homepage    = "https://github.com/sluice-bus/sluice"
	maintainer  = "The authors of Sluice <sluice-bus@users.noreply.github.com>"
	description = "Events over MongoDB: a sidecar, its control plane and the command line.\n" +
		"The sidecar takes the events of the applications beside it over HTTP and\n" +
		"WebSocket, stores them, and delivers them to consumer groups."
)

// makePackages makes a package for Debian and one for RPM, for each architecture of Linux.
func (r *release) makePackages(context.Context) error {
	for _, page := range manuals {
		if err := compress(r.document(page)); err != nil {
			return err
		}
	}
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		for _, kind := range []string{"deb", "rpm"} {
			if err := r.makePackage(p, kind); err != nil {
				return fmt.Errorf("%s for %s: %w", kind, p, err)
			}
		}
	}
	return nil
}

func (r *release) makePackage(p platform, kind string) error {
	scripts := filepath.Join(r.root, "deploy/release/scripts")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "sluice", Arch: p.arch, Platform: p.os, Version: r.version, Release: "1", Section: "net", Priority: "optional",
		Maintainer: maintainer, Vendor: "Sluice", Homepage: homepage, License: "Apache-2.0", Description: description,
		DisableGlobbing: true, MTime: r.date,
		Overridables: nfpm.Overridables{
			Depends:    map[string][]string{"rpm": {"/usr/sbin/groupadd"}}[kind],
			Recommends: []string{"ca-certificates"},
			Contents:   r.packageContents(p, kind),
			Scripts: nfpm.Scripts{
				PreInstall: filepath.Join(scripts, "preinstall.sh"), PostInstall: filepath.Join(scripts, "postinstall.sh"),
				PreRemove: filepath.Join(scripts, "preremove.sh"), PostRemove: filepath.Join(scripts, "postremove.sh"),
			},
			RPM: nfpm.RPM{BuildHost: "localhost", Compression: "zstd"},
			Deb: nfpm.Deb{Compression: "zstd"},
		},
	})
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.dist, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, out), out.Close())
}

func (r *release) packageContents(p platform, kind string) (contents files.Contents) {
	add := func(content files.Content, mode os.FileMode, group string) {
		content.FileInfo = &files.ContentFileInfo{Owner: "root", Group: group, Mode: mode, MTime: r.date}
		contents = append(contents, &content)
	}
	for _, f := range r.programFiles(p, "/usr/bin", programs) {
		add(files.Content{Source: f.source, Destination: f.name}, 0o755, "root")
	}
	share := func(source, destination string) {
		add(files.Content{Source: source, Destination: filepath.Join("/usr/share", destination)}, 0o644, "root")
	}
	for _, page := range manuals {
		share(r.document(page+".gz"), "man/man"+filepath.Ext(page)[1:]+"/"+page+".gz")
	}
	licenses := "doc/sluice"
	zsh := "zsh/vendor-completions"
	if kind == "rpm" {
		licenses, zsh = "licenses/sluice", "zsh/site-functions"
	}
	share(r.document(completions[0]), "bash-completion/completions/sluice")
	share(r.document(completions[1]), filepath.Join(zsh, completions[1]))
	share(r.document(completions[2]), "fish/vendor_completions.d/sluice.fish")
	share(filepath.Join(r.root, "LICENSE"), filepath.Join(licenses, map[string]string{"deb": "copyright", "rpm": "LICENSE"}[kind]))
	share(r.document("THIRD_PARTY_LICENSES.txt"), filepath.Join(licenses, "THIRD_PARTY_LICENSES.txt"))

	systemd := filepath.Join(r.root, "deploy/systemd")
	for _, unit := range []string{"sluice-sidecar.service", "sluice-controlplane.service"} {
		add(files.Content{Source: filepath.Join(systemd, unit), Destination: "/usr/lib/systemd/system/" + unit}, 0o644, "root")
	}
	// The services' group reads the settings, which may have the password of a database in them.
	add(files.Content{Destination: "/etc/sluice", Type: files.TypeDir}, 0o750, "sluice")
	for _, name := range []string{"sidecar.yaml", "controlplane.yaml"} {
		add(files.Content{
			Source: filepath.Join(systemd, name), Destination: "/etc/sluice/" + name, Type: files.TypeConfigNoReplace,
		}, 0o640, "sluice")
	}
	return contents
}

// compress writes a file again, with the extension .gz.
func compress(name string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	return create(name+".gz", nil, time.Time{}, func(w io.Writer, _ []file, _ time.Time) error {
		compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, err = io.Copy(compressed, in)
		return errors.Join(err, compressed.Close())
	})
}
