package access

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader walks a document and collects its mistakes.
type reader struct {
	program  Program
	problems []string
	places   []string // of the problems
}

// key is one key of an object and its value.
type key struct {
	name string
	must bool
	only Program // that uses it; 0: both
	doc  string
	value
}

// value is how a value is read, and its JSON Schema.
type value struct {
	read   func(n *yaml.Node, at string)
	schema map[string]any
}

// uses reports whether the program uses a key.
func (r *reader) uses(k key) bool { return k.only == 0 || k.only == r.program }

// refuse records a mistake at a node, or without a line.
func (r *reader) refuse(n *yaml.Node, at, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at != "" {
		text = at + ": " + text
	}
	if n != nil && n.Line > 0 {
		text = fmt.Sprintf("line %d: %s", n.Line, text)
	}
	r.problems = append(r.problems, text)
	r.places = append(r.places, at)
}

// refused reports whether one of the places has a mistake.
func (r *reader) refused(places ...string) bool {
	return slices.ContainsFunc(places, func(at string) bool { return slices.Contains(r.places, at) })
}

// object reads an object by its keys.
func (r *reader) object(n *yaml.Node, at string, keys []key) {
	if n.Kind != yaml.MappingNode {
		r.refuse(n, at, "must be an object with %s, not %s", r.names(keys), kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		place := join(at, name.Value)
		k := slices.IndexFunc(keys, func(k key) bool { return name.Kind == yaml.ScalarNode && k.name == name.Value })
		switch {
		case k < 0:
			r.refuse(name, place, "unknown key; allowed here: %s", r.names(keys))
		case seen[name.Value]:
			r.refuse(name, place, "the key occurs twice")
		case !r.uses(keys[k]):
			r.refuse(name, place, "means nothing to %s; allowed here: %s", r.program, r.names(keys))
		case value.Kind == yaml.AliasNode:
			r.refuse(value, place, "is an alias; write the value out")
		default:
			keys[k].read(value, place)
		}
		seen[name.Value] = true
	}
	for _, k := range keys {
		if k.must && r.uses(k) && !seen[k.name] {
			r.refuse(n, join(at, k.name), "is missing")
		}
	}
}

// schema is the JSON Schema of an object with the keys that the program uses.
func (r *reader) schema(keys []key) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, k := range keys {
		if !r.uses(k) {
			continue
		}
		schema := maps.Clone(k.value.schema)
		if k.doc != "" {
			schema["description"] = k.doc
		}
		properties[k.name] = schema
		if k.must {
			required = append(required, k.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// names lists the keys that the program uses.
func (r *reader) names(keys []key) string {
	var names []string
	for _, k := range keys {
		if r.uses(k) {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

// textSchema is the schema of a text, which may be written without quotation marks.
var textSchema = map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1}

func (r *reader) text(to *string) value {
	return value{func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Value == "" {
			r.refuse(n, at, "must be a text that is not empty, not %s", kindOf(n))
			return
		}
		*to = n.Value
	}, textSchema}
}

func (r *reader) flag(to *bool) value {
	return value{func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(to) != nil {
			r.refuse(n, at, "must be true or false, not %s", kindOf(n))
		}
	}, map[string]any{"type": "boolean"}}
}

func (r *reader) number(to *int, most int) value {
	return value{func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(to) != nil || *to < 1 || *to > most {
			r.refuse(n, at, "must be a whole number from 1 to %d, not %s", most, kindOf(n))
		}
	}, map[string]any{"type": "integer", "minimum": 1, "maximum": most}}
}

// kindOf is how an error quotes a node.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias (write the value out)"
	}
	if n.ShortTag() == "!!null" {
		return "nothing"
	}
	return shown(n.Value)
}

func join(at, name string) string {
	if len(name) > maxNameBytes {
		name = shown(name)
	} else if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' }) {
		name = strconv.Quote(name)
	}
	if at == "" {
		return name
	}
	return at + "." + name
}
