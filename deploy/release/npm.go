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

// makeNPM packs the client for JavaScript, with the version of the release. It is built in a folder of its own: the checkout's may be
// in use, or be built by somebody else at the same time.
func (r *release) makeNPM(ctx context.Context) error {
	source, dir := filepath.Join(r.root, "sdk/js"), filepath.Join(r.work, "js")
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(filepath.Join(source, "src"))); err != nil {
		return err
	}
	for name, from := range map[string]string{
		"LICENSE": r.root, "README.md": source, "package.json": source, "package-lock.json": source, "tsconfig.json": source, "build.mjs": source,
	} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if name == "package.json" {
			text = bytes.Replace(text, []byte(`"version": "0.0.0"`), fmt.Appendf(nil, `"version": %q`, r.number()), 1)
			if !bytes.Contains(text, []byte(r.number())) {
				return errors.New("sdk/js/package.json has another version than 0.0.0, which the release replaces")
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"},
		{"run", "build"},
		{"pack", "--ignore-scripts", "--pack-destination", r.dist},
	} {
		if _, err := command(ctx, dir, nil, "npm", args...); err != nil {
			return err
		}
	}
	return nil
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
