package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const testVersion = "v1.0.0-dirty"

// made is the release that the tests look at: for Linux on this machine's processor, and for Windows.
var made *release

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dist, err := os.MkdirTemp("", "dist")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dist)
		if made, err = makeIn(dist); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func makeIn(dist string) (*release, error) {
	r, err := newRelease(context.Background(), "../..", dist, testVersion, []string{"linux/" + runtime.GOARCH, "windows/amd64"})
	if err == nil {
		err = r.check()
	}
	if err == nil {
		// Nobody runs the programs for Windows here, and unoptimized they are compiled in two thirds of the time. Nobody downloads
		// anything.
		r.compression = gzip.BestSpeed
		r.foreign = []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " '-gcflags=all=-N -l'"}
		err = r.run(context.Background(), false)
	}
	return r, err
}

// need is the path of a tool. Without it the test is skipped.
func need(t *testing.T, tool string) string {
	t.Helper()
	found, err := exec.LookPath(tool)
	if err != nil {
		t.Skipf("this test needs %s", tool)
	}
	return found
}

// run runs a command in a folder, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), dir, nil, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// only is the file of dist that matches a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(made.dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

func TestTheSameBytesAgain(t *testing.T) {
	again, err := makeIn(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first, second := read(t, filepath.Join(made.dist, "SHA256SUMS")), read(t, filepath.Join(again.dist, "SHA256SUMS"))
	if first != second || strings.Count(first, "\n") < 9 {
		t.Errorf("the checksums are\n%sand then\n%s", first, second)
	}
	run(t, made.dist, need(t, "sha256sum"), "--check", "--strict", "SHA256SUMS")
}

func TestVersionsAndChanges(t *testing.T) {
	for version, fine := range map[string]bool{
		"v1.0.0": true, "v1.2.3-rc.1": true, "1.0.0": false, "v1.0": false, "v01.0.0": false, "v1.0.0+x": false, "": false,
	} {
		if err := (&release{version: version}).check(); (err == nil) != fine {
			t.Errorf("%q: %v", version, err)
		}
	}
	for version, fine := range map[string]bool{"v1.0.0": false, "v1.0.0-dirty": true} {
		if err := (&release{version: version, modified: true}).check(); (err == nil) != fine {
			t.Errorf("%q with changes: %v", version, err)
		}
	}
}

func TestLicenses(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                         "Apache-2.0",
		"Permission is hereby granted, free of\ncharge; under the Apache License, Version 2.0": "Apache-2.0 AND MIT",
		"Redistribution and use in source and binary\nforms":                                   "BSD-2-Clause",
		"Redistribution and use in source and binary forms … Neither the name of":              "BSD-3-Clause",
		"All rights reserved.": "",
	} {
		m := module{path: "example.org/m", licenses: []string{text}}
		if err := m.identify(); m.spdx != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", text, m.spdx, err, want)
		}
	}
}

func TestArchives(t *testing.T) {
	dir := t.TempDir()
	run(t, dir, need(t, "tar"), "-xzf", only(t, "*_linux_*.tar.gz"))
	opened, err := zip.OpenReader(only(t, "*_windows_*.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := os.CopyFS(dir, opened); err != nil {
		t.Fatal(err)
	}
	for folder, extension := range map[string]string{"sluice_1.0.0-dirty_linux_" + runtime.GOARCH: "", "sluice_1.0.0-dirty_windows_amd64": ".exe"} {
		for _, program := range programs {
			at := filepath.Join(dir, folder, program+extension)
			if _, err := os.Stat(at); err != nil {
				t.Error(err)
			} else if extension == "" && !strings.HasPrefix(run(t, dir, at, "--version"), program+" "+testVersion+" ") {
				t.Errorf("%s has another version", program)
			}
		}
		checkLicenses(t, filepath.Join(dir, folder, "LICENSE"), filepath.Join(dir, folder, "THIRD_PARTY_LICENSES.txt"))
	}
}

func checkLicenses(t *testing.T, own, others string) {
	t.Helper()
	if text := read(t, own); !strings.Contains(text, "Apache License") {
		t.Errorf("%s is %q", own, text)
	}
	text := read(t, others)
	for _, work := range []string{"std", "go.mongodb.org/mongo-driver/v2", "npm:preact"} {
		if !strings.Contains(text, "\n  "+work+" ") || !regexp.MustCompile(`(?m)^(.*, )?`+regexp.QuoteMeta(work)+`(,|$)`).MatchString(text) {
			t.Errorf("%s lacks %s, or its license", others, work)
		}
	}
}

// serve starts a server on free ports, and returns the members of its ready line.
func serve(t *testing.T, program string, args ...string) (ready map[string]any) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "SLUICE_LISTEN=127.0.0.1:0", "SLUICE_REPLAY_LISTEN=127.0.0.1:0", "SLUICE_OPS_LISTEN=127.0.0.1:0",
		"SLUICE_HTTP_LISTEN=127.0.0.1:0", "SLUICE_XDS_LISTEN=127.0.0.1:0", "SLUICE_DATA_DIR="+t.TempDir())
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, &log)
	}
	return ready
}

// publish publishes an event with a command line to a sidecar, and reads it back.
func publish(t *testing.T, sluice string, ready map[string]any) {
	t.Helper()
	url := fmt.Sprint("http://", ready["listen"])
	run(t, "", sluice, "--url", url, "pub", "orders", `{"order":17}`)
	if out := run(t, "", sluice, "--url", url, "replay", "orders"); !strings.Contains(out, `"order":17`) && !strings.Contains(out, `"order": 17`) {
		t.Errorf("what is read is %s", out)
	}
}

func TestDebianPackage(t *testing.T) {
	root := t.TempDir()
	run(t, root, need(t, "dpkg-deb"), "--extract", only(t, "*.deb"), root)
	fields := run(t, root, "dpkg-deb", "--field", only(t, "*.deb"))
	if !strings.Contains(fields, "Version: 1.0.0~dirty-1\n") || !strings.Contains(fields, "Architecture: "+runtime.GOARCH+"\n") {
		t.Errorf("the package is\n%s", fields)
	}
	checkLicenses(t, filepath.Join(root, "usr/share/doc/sluice/copyright"), filepath.Join(root, "usr/share/doc/sluice/THIRD_PARTY_LICENSES.txt"))
	for _, page := range manuals {
		at := filepath.Join(root, "usr/share/man", "man"+path.Ext(page)[1:], page+".gz")
		text, err := gzip.NewReader(strings.NewReader(read(t, at)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(text); err != nil || !bytes.HasPrefix(got, []byte(".TH SLUICE")) {
			t.Errorf("%s: %v\n%s", page, err, got)
		}
	}
	ready := map[string]map[string]any{}
	for _, name := range []string{"sluice-sidecar", "sluice-controlplane"} {
		file := filepath.Join(root, "usr/lib/systemd/system", name+".service")
		unit := regexp.MustCompile(`/(usr/bin/sluice|etc/sluice)`).ReplaceAllString(read(t, file), root+"/$1")
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { run(t, root, need(t, "systemd-analyze"), "verify", "--man=no", file) })
		words := strings.Fields(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)[1])
		ready[name] = serve(t, words[0], words[1:]...)
	}
	publish(t, filepath.Join(root, "usr/bin/sluice"), ready["sluice-sidecar"])
}

// TestScripts runs the scripts of the packages where there is no systemd, with a machine that has the group already.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "getent"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"preinstall", "postinstall", "preremove", "postremove"} {
		if _, err := os.Stat("/run/systemd/system"); err == nil && name != "preinstall" {
			t.Skip("this machine runs systemd, which the scripts would call")
		}
		if out, err := command(t.Context(), "scripts", []string{"PATH=" + bin + ":/bin"}, "sh", name+".sh", "remove"); err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

func TestRPM(t *testing.T) {
	rpm, file := need(t, "rpm"), only(t, "*.rpm")
	run(t, "", rpm, "--checksig", "--nosignature", file)
	listed := run(t, "", rpm, "--query", "--package", "--list", file)
	for _, name := range []string{"/usr/bin/sluice-sidecar", "/usr/lib/systemd/system/sluice-sidecar.service", "/usr/share/licenses/sluice/LICENSE"} {
		if !strings.Contains(listed, name+"\n") {
			t.Errorf("the package lacks %s:\n%s", name, listed)
		}
	}
}

func TestImages(t *testing.T) {
	for _, img := range images {
		t.Run(img.name, func(t *testing.T) {
			file, dir := only(t, img.name+"_*_oci.tar"), t.TempDir()
			run(t, dir, need(t, "tar"), "-xf", file)
			top, err := layout.ImageIndexFromPath(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(top); err != nil {
				t.Error(err)
			}
			images, err := partial.FindImages(first(t, top), func(d v1.Descriptor) bool {
				return d.Platform.Equals(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
			})
			if err != nil || len(images) != 1 {
				t.Fatalf("%d images, %v", len(images), err)
			}
			checkImage(t, images[0])

			// Docker reads it in its own form, too.
			tag, err := name.NewTag(img.name + ":1.0.0-dirty")
			if err != nil {
				t.Fatal(err)
			}
			saved, err := tarball.ImageFromPath(file, &tag)
			if err == nil {
				err = validate.Image(saved)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// first is the one index that an index has.
func first(t *testing.T, top v1.ImageIndex) v1.ImageIndex {
	t.Helper()
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v, %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// checkImage unpacks an image, and runs what a container would run.
func checkImage(t *testing.T, img v1.Image) {
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config, root := file.Config, t.TempDir()
	if config.User != "65532:65532" || config.StopSignal != "SIGTERM" || !maps.Equal(config.Volumes, map[string]struct{}{"/var/lib/sluice": {}}) {
		t.Errorf("the configuration is %+v", config)
	}
	archive := filepath.Join(root, "image.tar")
	out, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, mutate.Extract(img)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if listed := run(t, root, "tar", "--numeric-owner", "-tvf", archive, "var/lib/sluice"); !strings.Contains(listed, " 65532/65532 ") {
		t.Errorf("the data folder is another user's: %s", listed)
	}
	run(t, root, "tar", "--no-same-owner", "-xf", archive)
	entries, err := os.ReadDir(filepath.Join(root, "usr/bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if line := run(t, root, filepath.Join(root, "usr/bin", entry.Name()), "--version"); !strings.Contains(line, " "+testVersion+" ") {
			t.Errorf("%s says %s", entry.Name(), line)
		}
	}
	program, sluice := root+config.Entrypoint[0], root+config.Healthcheck.Test[1]
	manual := run(t, root, program, "--man") + run(t, root, sluice, "--man")
	for _, variable := range config.Env {
		name, _, _ := strings.Cut(variable, "=")
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SLUICE_")), "_", `\-`)
		if name != "PATH" && !strings.Contains(manual, `\fB\-\-`+flag+`\fR`) {
			t.Errorf("%s is set, which nothing in the image reads", name)
		}
	}
	var ports []string
	for _, found := range regexp.MustCompile(`default: 127\.0\.0\.1:(\d+)`).FindAllStringSubmatch(run(t, root, program, "--man"), -1) {
		ports = append(ports, found[1]+"/tcp")
	}
	if exposed := slices.Sorted(maps.Keys(config.ExposedPorts)); !slices.Equal(exposed, slices.Sorted(slices.Values(ports))) {
		t.Errorf("the ports %s are exposed, and the program's are %s", exposed, ports)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(read(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")))) {
		t.Error("there are no certificates")
	}
	licenses := filepath.Join(root, "usr/share/licenses/sluice")
	checkLicenses(t, filepath.Join(licenses, "LICENSE"), filepath.Join(licenses, "THIRD_PARTY_LICENSES.txt"))

	ready := serve(t, program)
	ops, _ := ready["ops"].(string)
	if ops == "" {
		ops = ready["http"].(string)
	} else {
		publish(t, sluice, ready)
	}
	run(t, root, sluice, append(config.Healthcheck.Test[2:], "--ops-url", "http://"+ops, "--timeout", "30s")...)
}

// TestNPM installs the package in an empty folder, and uses it as a module of either kind.
func TestNPM(t *testing.T) {
	node, npm, dir := need(t, "node"), need(t, "npm"), t.TempDir()
	run(t, dir, npm, "install", "--offline", "--no-audit", "--no-fund", only(t, "sluice-bus-sluice-*.tgz"))
	ready := serve(t, filepath.Join(linked(t), "sluice-sidecar"))
	use := `const bus = new EventBus({url: "http://` + ready["listen"].(string) + `"}); ` +
		`bus.publish("orders", {order: 17}).then(receipt => { console.log(receipt.seq); return bus.close() })`
	for file, program := range map[string]string{
		"use.mjs": `import {EventBus} from "@sluice-bus/sluice"; ` + use, "use.cjs": `const {EventBus} = require("@sluice-bus/sluice"); ` + use,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		if seq := strings.TrimSpace(run(t, dir, node, "--experimental-websocket", file)); !regexp.MustCompile(`^\d+$`).MatchString(seq) {
			t.Errorf("%s prints %q", file, seq)
		}
	}
	var about struct{ Version, License string }
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "node_modules/@sluice-bus/sluice/package.json"))), &about); err != nil ||
		about.Version != "1.0.0-dirty" || !strings.Contains(read(t, filepath.Join(dir, "node_modules/@sluice-bus/sluice/LICENSE")), about.License[:6]) {
		t.Errorf("the package is %+v, %v", about, err)
	}
}

func TestChart(t *testing.T) {
	dir := t.TempDir()
	run(t, dir, need(t, "tar"), "-xzf", only(t, "sluice-1.0.0-dirty.tgz"))
	about := read(t, filepath.Join(dir, "sluice/Chart.yaml"))
	if !strings.Contains(about, "\nversion: \"1.0.0-dirty\"\nappVersion: \"1.0.0-dirty\"\n") {
		t.Errorf("the chart is\n%s", about)
	}
	if read(t, filepath.Join(dir, "sluice/files/alerts.yaml")) != read(t, filepath.Join(made.root, "deploy/prometheus/alerts.yaml")) {
		t.Error("the alerts are others")
	}
	read(t, filepath.Join(dir, "sluice/LICENSE"))
}

// linked is the folder of the programs of the archive for Linux.
func linked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, need(t, "tar"), "-xzf", only(t, "*_linux_*.tar.gz"))
	return filepath.Join(dir, "sluice_1.0.0-dirty_linux_"+runtime.GOARCH)
}

// TestOrigin reads what a release says about itself.
func TestOrigin(t *testing.T) {
	var sbom struct {
		Components []struct {
			Ref      string `json:"bom-ref"`
			Licenses []struct{ Expression string }
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal([]byte(read(t, only(t, "*_sbom.cdx.json"))), &sbom); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{own: true}
	for _, c := range sbom.Components {
		if refs[c.Ref] || len(c.Licenses) != 1 || c.Licenses[0].Expression == "" {
			t.Errorf("%s is there twice, or has no license", c.Ref)
		}
		refs[c.Ref] = true
	}
	for _, d := range sbom.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] || len(d.DependsOn) == 0 {
				t.Errorf("%s depends on %d, of which %s is no component", d.Ref, len(d.DependsOn), ref)
			}
		}
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, only(t, "*_provenance.intoto.json"))), &statement); err != nil {
		t.Fatal(err)
	}
	sums := read(t, filepath.Join(made.dist, "SHA256SUMS"))
	for _, subject := range statement.Subject {
		if !strings.Contains(sums, subject.Digest.SHA256+"  "+subject.Name+"\n") {
			t.Errorf("the checksums lack %+v", subject)
		}
	}
	if want := strings.Count(sums, "\n") - 1; len(statement.Subject) != want {
		t.Errorf("%d files have their provenance, want %d", len(statement.Subject), want)
	}
}
