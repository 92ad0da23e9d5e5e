package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// writeSBOM writes which program is made of what, as CycloneDX 1.6.
func (r *release) writeSBOM(context.Context) error {
	type object = map[string]any
	goPackage := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	components, depends := []object{}, map[string][]string{}
	for _, m := range r.modules {
		ref := goPackage(m.path, m.version)
		if name, ok := strings.CutPrefix(m.path, "npm:"); ok {
			ref = "pkg:npm/" + name + "@" + m.version
		}
		component := object{
			"type": "library", "bom-ref": ref, "purl": ref, "name": m.path, "version": m.version,
			"licenses": []object{{"expression": m.spdx}},
		}
		if m.sha256 != "" {
			component["hashes"] = []object{{"alg": "SHA-256", "content": m.sha256}}
		}
		components = append(components, component)
		for _, program := range m.programs {
			depends[program] = append(depends[program], ref)
		}
	}
	dependencies := []object{}
	everything := append(programs, injector)
	for _, program := range everything {
		components = append(components, object{
			"type": "application", "bom-ref": program, "name": program, "version": r.version, "licenses": []object{{"expression": "Apache-2.0"}},
		})
		dependencies = append(dependencies, object{"ref": program, "dependsOn": depends[program]})
	}
	dependencies = append(dependencies, object{"ref": own, "dependsOn": everything})
	return r.writeJSON(fmt.Sprintf("sluice_%s_sbom.cdx.json", r.number()), object{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": object{
			"timestamp": r.date.Format("2006-01-02T15:04:05Z"),
			"component": object{
				"type": "application", "bom-ref": own, "name": "sluice", "version": r.version, "purl": goPackage(own, r.version),
			},
		},
		"components": components, "dependencies": dependencies,
	})
}

// writeProvenance writes what the other files of dist were made of and how: a statement of in-toto with the predicate of SLSA 1,
// which nobody has signed yet.
func (r *release) writeProvenance(context.Context) error {
	type object = map[string]any
	names, err := r.files()
	if err != nil {
		return err
	}
	subjects := []object{}
	for _, name := range names {
		digest, err := r.digest(name)
		if err != nil {
			return err
		}
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": digest}})
	}
	var platforms []string
	for _, p := range r.platforms {
		platforms = append(platforms, p.String())
	}
	source := object{"uri": "git+" + homepage, "digest": object{"gitCommit": r.commit}}
	if r.modified {
		source["annotations"] = object{"modified": true}
	}
	return r.writeJSON(fmt.Sprintf("sluice_%s_provenance.intoto.json", r.number()), object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":          homepage + "/blob/main/deploy/RELEASING.md",
				"externalParameters": object{"VERSION": r.version, "PLATFORMS": platforms},
				"resolvedDependencies": []object{
					source, {"uri": "pkg:generic/go@" + strings.TrimPrefix(runtime.Version(), "go")},
				},
			},
			"runDetails": object{"builder": object{"id": homepage + "/blob/main/deploy/RELEASING.md"}},
		},
	})
}

// writeSums writes the checksums of all files of dist, as sha256sum -c reads them.
func (r *release) writeSums(context.Context) error {
	names, err := r.files()
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range names {
		digest, err := r.digest(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", digest, name)
	}
	return os.WriteFile(filepath.Join(r.dist, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

func (r *release) writeJSON(name string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, name), append(text, '\n'), 0o644)
}

// files are the names of what is in dist, in their order.
func (r *release) files() (names []string, err error) {
	entries, err := os.ReadDir(r.dist)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	return names, err
}

func (r *release) digest(name string) (string, error) {
	in, err := os.Open(filepath.Join(r.dist, name))
	if err != nil {
		return "", err
	}
	defer in.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, in)
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}
