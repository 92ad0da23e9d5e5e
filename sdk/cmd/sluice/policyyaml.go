package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/admin"
)

// printYAML prints a policy as a file of policies has it, behind a comment that names its author.
func printYAML(w io.Writer, p *admin.Policy) error {
	set := settings(p)
	document := &yaml.Node{Kind: yaml.MappingNode}
	addMember(document, "name", textNode(p.Name))
	for _, path := range paths(set) {
		sections := strings.Split(path, ".")
		last := len(sections) - 1
		at := document
		for _, name := range sections[:last] {
			at = section(at, name)
		}
		addMember(at, sections[last], valueNode(set[path]))
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# version %d, changed %s by %s\n", p.Version, instant(p.UpdatedAt), plain(p.UpdatedBy))
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{document}}); err != nil {
		return err
	}
	_, err := out.WriteTo(w)
	return err
}

func addMember(object *yaml.Node, name string, value *yaml.Node) {
	object.Content = append(object.Content, textNode(name), value)
}

// section returns the object's section of that name, which it adds if there is none.
func section(object *yaml.Node, name string) *yaml.Node {
	for pair := range slices.Chunk(object.Content, 2) {
		if pair[0].Value == name {
			return pair[1]
		}
	}
	added := &yaml.Node{Kind: yaml.MappingNode}
	addMember(object, name, added)
	return added
}

func textNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	return n
}

// valueNode makes YAML of a field's JSON: numbers as they are written, and a JSON Schema as the
// text that it is.
func valueNode(value json.RawMessage) *yaml.Node {
	var text string
	switch {
	case len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil:
		return textNode(text)
	case len(value) > 0 && (value[0] == '{' || value[0] == '['):
		return textNode(string(value))
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: string(value)}
}
