package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// own is the path of this repository's modules.
const own = "github.com/sluice-bus/sluice"

// A module is what others have made and is linked into programs: a Go module, the standard library, or a script of the console.
type module struct {
	path, version string
	sha256        string   // in hexadecimal; "" where Go has no sum
	programs      []string // that have it
	licenses      []string // their texts
	spdx          string   // the identifiers of the licenses
}

// readModules finds what is linked into the programs of all platforms. It fails if the license of something is not known.
func (r *release) readModules(ctx context.Context) error {
	found := map[string]*module{}
	for _, p := range r.platforms {
		packages, err := r.addLinked(found, p)
		if err != nil {
			return err
		}
		if err := r.addLicenses(ctx, found, p, packages); err != nil {
			return err
		}
	}
	if err := r.addConsoleScripts(found); err != nil {
		return err
	}
	var unknown []error
	for _, m := range found {
		unknown = append(unknown, m.identify())
		r.modules = append(r.modules, *m)
	}
	slices.SortFunc(r.modules, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return errors.Join(unknown...)
}

// addLinked adds the modules that the programs for a platform name themselves, and returns the programs' packages.
func (r *release) addLinked(found map[string]*module, p platform) (packages []string, err error) {
	for _, f := range r.programFiles(p, "", append(programs, injector)) {
		info, err := buildinfo.ReadFile(f.source)
		if err != nil {
			return nil, err
		}
		packages = append(packages, info.Path)
		add := func(path, version, sum string) error {
			if found[path] == nil {
				digest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
				if err != nil {
					return fmt.Errorf("the sum of %s: %w", path, err)
				}
				found[path] = &module{path: path, version: version, sha256: hex.EncodeToString(digest)}
			}
			m, program := found[path], strings.TrimSuffix(f.name, ".exe")
			if !slices.Contains(m.programs, program) {
				m.programs = append(m.programs, program)
			}
			return nil
		}
		if err := add("std", strings.TrimPrefix(info.GoVersion, "go"), ""); err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			if m.Path == own || strings.HasPrefix(m.Path, own+"/") {
				continue
			}
			if err := add(m.Path, m.Version, m.Sum); err != nil {
				return nil, err
			}
		}
	}
	return packages, nil
}

// licenseFile is how files are named that have a license, or what it wants to be passed on.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// addLicenses adds the files about licenses in the folder of each package that these need, and in those above it within its module.
func (r *release) addLicenses(ctx context.Context, found map[string]*module, p platform, packages []string) error {
	const form = `{{.Dir}}|{{if .Standard}}std|{{else}}{{with .Module}}{{.Path}}|{{.Dir}}{{end}}{{end}}`
	env := []string{"GOWORK=", "CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch}
	out, err := command(ctx, r.root, env, "go", append([]string{"list", "-deps", "-f", form}, packages...)...)
	if err != nil {
		return err
	}
	goroot, err := command(ctx, r.root, env, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		columns := strings.Split(strings.TrimSpace(line), "|")
		dir, path, top := columns[0], columns[1], columns[2]
		if path == "std" {
			top = strings.TrimSpace(string(goroot))
		}
		m := found[path]
		if m == nil {
			continue // one of this repository
		}
		for ; strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			if err := m.addLicensesIn(dir, licenseFile); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *module) addLicensesIn(dir string, named *regexp.Regexp) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !named.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		if trimmed := strings.TrimSpace(string(text)); !slices.Contains(m.licenses, trimmed) {
			m.licenses = append(m.licenses, trimmed)
		}
	}
	return nil
}

// addConsoleScripts adds what the control plane's console has of others. Its README names the versions.
func (r *release) addConsoleScripts(found map[string]*module) error {
	dir := filepath.Join(r.root, "controlplane/internal/console/static/vendor")
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	for _, name := range []string{"htm", "preact"} {
		version := regexp.MustCompile(`\b` + name + ` (\d+\.\d+\.\d+)`).FindSubmatch(readme)
		if version == nil {
			return fmt.Errorf("%s/README.md does not have the version of %s", dir, name)
		}
		m := &module{path: "npm:" + name, version: string(version[1]), programs: []string{"sluice-controlplane"}}
		if err := m.addLicensesIn(dir, regexp.MustCompile(`^`+name+`-LICENSE`)); err != nil {
			return err
		}
		found[m.path] = m
	}
	return nil
}

// known are licenses by a phrase of each, in the form that words has.
var known = []struct{ phrase, id string }{
	{"apache license version 2.0", "Apache-2.0"},
	{"permission is hereby granted free of charge", "MIT"},
	{"neither the name of", "BSD-3-Clause"},
	{"neither name of copyright holders", "BSD-3-Clause"},
	{"redistribution and use in source and binary forms", "BSD-2-Clause"},
	{"mozilla public license version 2.0", "MPL-2.0"},
	{"permission to use copy modify and", "ISC"},
}

// words is a text without its commas and lines.
func words(text string) string {
	return strings.Join(strings.Fields(strings.ToLower(strings.ReplaceAll(text, ",", ""))), " ")
}

// identify finds which licenses a module is under. One that is not known needs somebody to look whether it may be passed on.
func (m *module) identify() error {
	var ids []string
	for _, text := range m.licenses {
		text = words(text)
		for _, l := range known {
			moreThanTwoClauses := l.id == "BSD-2-Clause" && strings.Contains(text, "neither ")
			if strings.Contains(text, l.phrase) && !moreThanTwoClauses && !slices.Contains(ids, l.id) {
				ids = append(ids, l.id)
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("%s %s is in %s, and has no license that is known (modules.go)", m.path, m.version, strings.Join(m.programs, ", "))
	}
	slices.Sort(ids)
	m.spdx = strings.Join(ids, " AND ")
	return nil
}
