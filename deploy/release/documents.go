package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// manuals are the manual pages by their files; the extension is the section.
var manuals = []string{"sluice.1", "sluice-bench.1", "sluice-controlplane.8", "sluice-sidecar.8"}

// completions are the scripts for shells by their files, as these look for them.
var completions = []string{"sluice.bash", "_sluice", "sluice.fish"}

// document is where a file is that writeDocuments makes.
func (r *release) document(name string) string { return filepath.Join(r.work, name) }

// writeDocuments has the programs print their manual pages and completion, and collects the licenses of what is in them.
func (r *release) writeDocuments(ctx context.Context) error {
	print := func(name, program string, args ...string) error {
		out, err := command(ctx, r.work, nil, filepath.Join(r.bin(thisMachine), program), args...)
		if err != nil {
			return err
		}
		return os.WriteFile(r.document(name), out, 0o644)
	}
	for _, page := range manuals {
		if err := print(page, strings.TrimSuffix(page, filepath.Ext(page)), "--man"); err != nil {
			return err
		}
	}
	for i, shell := range []string{"bash", "zsh", "fish"} {
		if err := print(completions[i], "sluice", "completion", shell); err != nil {
			return err
		}
	}
	return os.WriteFile(r.document("THIRD_PARTY_LICENSES.txt"), r.licenses(), 0o644)
}

// licenses has the licenses of everything of others that is in the programs. A text that several have is there once.
func (r *release) licenses() []byte {
	var out bytes.Buffer
	out.WriteString("The programs of Sluice contain the following works. Their licenses follow.\n\n")
	owners := map[string][]string{}
	var texts []string
	for _, m := range r.modules {
		fmt.Fprintf(&out, "  %s %s (%s)\n", m.path, m.version, m.spdx)
		for _, text := range m.licenses {
			if owners[text] == nil {
				texts = append(texts, text)
			}
			owners[text] = append(owners[text], m.path)
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(owners[text], ", "), text)
	}
	return out.Bytes()
}
