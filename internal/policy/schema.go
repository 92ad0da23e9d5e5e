package policy

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/schema"
)

// schemaPath is the field of the schema.
const schemaPath = "schema.json_schema"

// goodSchemas are the digests of schemas that compiled recently: a schema is parsed again with
// every change of its policies.
var goodSchemas = schema.Recent[[sha256.Size]byte, struct{}]{Size: 4096}

// checkSchema compiles a schema, unless it has compiled recently.
func checkSchema(text string) error {
	digest := sha256.Sum256([]byte(text))
	if _, known := goodSchemas.Get(digest); known {
		return nil
	}
	_, err := schema.Compile(text)
	if err == nil {
		goodSchemas.Put(digest, struct{}{})
	}
	return err
}

// jsonSchema parses a schema like schemaText, and refuses one that does not compile.
func jsonSchema(n *yaml.Node) (string, error) {
	text, err := schemaText(n)
	if err == nil && text != "" {
		err = checkSchema(text)
	}
	return text, err
}

// read sets the schema, and the version of one without a count.
func (s *Schema) read(n *yaml.Node) error {
	text, err := jsonSchema(n)
	if err != nil {
		return err
	}
	s.JSONSchema, s.Version = text, 0
	if text != "" {
		s.Version = 1
	}
	return nil
}

// schemaField is the schema with its version, which is inherited with it.
var schemaField = field{
	path: schemaPath,
	schema: described(map[string]any{"type": []string{"object", "string", "null"}},
		"JSON Schema of payloads, or a text that holds one; null: any payload"),
	read: func(e *Effective, n *yaml.Node) error { return e.Schema.read(n) },
	copy: func(dst, src *Effective) {
		dst.Schema.JSONSchema, dst.Schema.Version = src.Schema.JSONSchema, src.Schema.Version
	},
	get: func(e *Effective) any { return e.Schema.JSONSchema },
}

// schemaText parses a schema written as an object or as a string of JSON text, with one result for
// both; an explicit null is no schema, and ends inheritance.
func schemaText(n *yaml.Node) (string, error) {
	bad := fmt.Errorf("must be null, a JSON Schema object, or a string that holds one, not %s", shown(n))
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return "", nil
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		root, err := jsonRoot([]byte(n.Value))
		if err != nil || root.Kind != yaml.MappingNode {
			return "", bad
		}
		return schemaText(root)
	case n.Kind == yaml.MappingNode:
		text, err := appendJSON(nil, n, 0)
		if err != nil {
			return "", fmt.Errorf("%w: %w", bad, err)
		}
		return string(text), nil
	}
	return "", bad
}

// maxSchemaNesting bounds the depth of a schema, so that its documents can be parsed.
const maxSchemaNesting = maxNesting / 2

// appendJSON encodes a YAML value as JSON, members in their order; depth is its depth.
func appendJSON(out []byte, n *yaml.Node, depth int) ([]byte, error) {
	if depth > maxSchemaNesting {
		return nil, fmt.Errorf("nested more than %d deep", maxSchemaNesting)
	}
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		out = append(out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: the name of a member must be a string", n.Content[i].Line)
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendText(out, n.Content[i].Value), ':')
			if out, err = appendJSON(out, n.Content[i+1], depth+1); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, item := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendJSON(out, item, depth+1); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case yaml.ScalarNode:
		return appendScalar(out, n)
	}
	return nil, errors.New("aliases are not supported, write the value out")
}

func appendScalar(out []byte, n *yaml.Node) ([]byte, error) {
	switch n.ShortTag() {
	case "!!null":
		return append(out, "null"...), nil
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) { // keeps 0.10 and large numbers as written
			return append(out, n.Value...), nil
		}
	case "!!bool":
	default:
		return appendText(out, n.Value), nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %s is not a value of its type", n.Line, shown(n))
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("line %d: JSON cannot say %s", n.Line, shown(n))
	}
	return append(out, text...), nil
}

func appendText(out []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return append(out, text...)
}
