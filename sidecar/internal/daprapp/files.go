package daprapp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resource is a document of Dapr's: a Subscription, or another kind, which is passed over.
type resource struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Metadata   map[string]any `yaml:"metadata"`
	Spec       yaml.Node      `yaml:"spec"`
	Scopes     []string       `yaml:"scopes"`
}

// ReadFiles reads the subscriptions of an application in a YAML file, or in all of a folder: documents of the kind
// Subscription, as people have them for Dapr, whose scopes, if there are any, name the application. The error names
// each mistake with its file and line. pathNeeded is Described.Check's.
func ReadFiles(path, appID string, pathNeeded bool) (list []Described, err error) {
	names := []string{path}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		if names, err = yamlFiles(path); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		some, err := readDocuments(text, appID, pathNeeded)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		list = append(list, some...)
	}
	return list, errors.Join(errs...)
}

func yamlFiles(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

func readDocuments(text []byte, appID string, pathNeeded bool) (list []Described, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		var r resource
		if err := doc.Decode(&r); err != nil || r.Kind != "Subscription" {
			if err != nil {
				return nil, err
			}
			continue
		}
		d, err := r.subscription(pathNeeded)
		if err != nil {
			return nil, err
		}
		if len(r.Scopes) == 0 || slices.Contains(r.Scopes, appID) {
			list = append(list, d)
		}
	}
}

// known are the members of a spec, and of its parts.
var known = map[string][]string{
	"spec":          {"pubsubname", "topic", "route", "routes", "deadLetterTopic", "bulkSubscribe", "metadata"},
	"routes":        {"rules", "default"},
	"rules":         {"match", "path"},
	"bulkSubscribe": {"enabled", "maxMessagesCount", "maxAwaitDurationMs"},
}

// checkKnown refuses members that are not known: a misspelt one would be lost.
func checkKnown(part string, n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		for _, element := range n.Content {
			if err := checkKnown(part, element); err != nil {
				return err
			}
		}
	}
	if n.Kind != yaml.MappingNode || known[part] == nil {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !slices.Contains(known[part], key.Value) {
			return fmt.Errorf("line %d: %s.%s is not known; known are %s", key.Line, part, key.Value, strings.Join(known[part], ", "))
		}
		if err := checkKnown(key.Value, value); err != nil {
			return err
		}
	}
	return nil
}

// subscription reads the spec.
func (r *resource) subscription(pathNeeded bool) (d Described, err error) {
	version, ok := strings.CutPrefix(r.APIVersion, "dapr.io/")
	switch {
	case !ok || version != "v1alpha1" && version != "v2alpha1":
		return d, fmt.Errorf("apiVersion %q of a Subscription is not known; dapr.io/v2alpha1 and dapr.io/v1alpha1 are", r.APIVersion)
	case r.Spec.Kind != yaml.MappingNode:
		return d, fmt.Errorf("a Subscription has no spec")
	}
	if err := checkKnown("spec", &r.Spec); err != nil {
		return d, err
	}
	if err := r.Spec.Decode(&d); err != nil {
		return d, err
	}
	if _, err := d.Check(pathNeeded); err != nil {
		return d, fmt.Errorf("line %d: the Subscription cannot be served: %w", r.Spec.Line, err)
	}
	return d, nil
}
