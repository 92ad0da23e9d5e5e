package policy

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// JSONSchema is the JSON Schema of the file that [ParseYAML] reads, so that editors complete it and
// point out mistakes. It cannot say how fields relate.
func JSONSchema() map[string]any {
	policies := map[string]any{"type": "array", "items": PolicySchema()}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Policies of Sluice",
		"anyOf":   []any{policies, object(map[string]any{"policies": policies}), map[string]any{"type": "null"}},
	}
}

// PolicySchema is the JSON Schema of one policy.
func PolicySchema() map[string]any {
	name := map[string]any{
		"type": "string", "maxLength": wire.MaxTopicBytes, "pattern": `^([A-Za-z0-9._-]+\*?|\*)$`,
		"description": "a topic, or a prefix and a *",
	}
	root := object(map[string]any{"name": name})
	root["required"] = []string{"name"}
	defaults := Defaults()
	for _, f := range fields {
		at := root
		keys := strings.Split(f.path, ".")
		for _, key := range keys[:len(keys)-1] {
			inner := at["properties"].(map[string]any)
			if inner[key] == nil {
				section := object(map[string]any{})
				section["type"] = []string{"object", "null"}
				inner[key] = section
			}
			at = inner[key].(map[string]any)
		}
		field := maps.Clone(f.schema)
		field["default"] = json.RawMessage(appendValue(nil, f.path, plain(f.get(&defaults))))
		at["properties"].(map[string]any)[keys[len(keys)-1]] = field
	}
	return root
}

// object is the schema of an object that has no other members.
func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// namedSchema is the schema of an object whose members have any name, or of a text that holds one.
func namedSchema(most int, member map[string]any) map[string]any {
	return map[string]any{"type": []string{"object", "string", "null"}, "maxProperties": most, "additionalProperties": member}
}

// described is a schema with a description.
func described(schema map[string]any, doc string) map[string]any {
	schema = maps.Clone(schema)
	schema["description"] = doc
	return schema
}
