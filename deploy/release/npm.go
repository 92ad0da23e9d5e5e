package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// makeNPM packs the client for JavaScript, with the version of the release. Its folder is left as it is, but for what it builds.
func (r *release) makeNPM(ctx context.Context) error {
	source, dir := filepath.Join(r.root, "sdk/js"), filepath.Join(r.work, "js")
	if _, err := os.Stat(filepath.Join(source, "node_modules")); err != nil {
		if _, err := command(ctx, source, nil, "npm", "ci", "--no-audit", "--no-fund"); err != nil {
			return err
		}
	}
	if _, err := command(ctx, source, nil, "npm", "run", "build"); err != nil {
		return err
	}
	about, err := os.ReadFile(filepath.Join(source, "package.json"))
	if err != nil {
		return err
	}
	about = bytes.Replace(about, []byte(`"version": "0.0.0"`), fmt.Appendf(nil, `"version": %q`, r.number()), 1)
	if !bytes.Contains(about, []byte(r.number())) {
		return errors.New("sdk/js/package.json has another version than 0.0.0, which the release replaces")
	}
	if err := os.CopyFS(filepath.Join(dir, "dist"), os.DirFS(filepath.Join(source, "dist"))); err != nil {
		return err
	}
	for from, name := range map[string]string{filepath.Join(r.root, "LICENSE"): "LICENSE", filepath.Join(source, "README.md"): "README.md"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), about, 0o644); err != nil {
		return err
	}
	_, err = command(ctx, dir, nil, "npm", "pack", "--ignore-scripts", "--pack-destination", r.dist)
	return err
}

var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion):.*$`)

// makeChart packs the Helm chart, with the version of the release. Files of deploy/ that it links to are in it.
func (r *release) makeChart(context.Context) error {
	source, about := filepath.Join(r.root, "deploy/helm/sluice"), r.document("Chart.yaml")
	text, err := os.ReadFile(filepath.Join(source, "Chart.yaml"))
	if err != nil {
		return err
	}
	text = chartVersion.ReplaceAll(text, fmt.Appendf(nil, "${1}: %q", r.number()))
	if err := os.WriteFile(about, text, 0o644); err != nil {
		return err
	}
	files, err := filesBelow(source)
	if err != nil {
		return err
	}
	for i := range files {
		if files[i].name == "Chart.yaml" {
			files[i].source = about
		}
		files[i].name = "sluice/" + files[i].name
	}
	files = append(files, file{name: "sluice/LICENSE", source: filepath.Join(r.root, "LICENSE"), mode: 0o644})
	return create(filepath.Join(r.dist, "sluice-"+r.number()+".tgz"), files, r.date, r.writeTarGzip)
}
