package reference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fields are the rows of a document's fields with their defaults: field, value, default, meaning.
func fields(path string, schema map[string]any) (rows [][]string) {
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 || schema["default"] != nil {
		standard := ""
		if schema["default"] != nil {
			standard = code(text(schema["default"]))
		}
		rows = append(rows, []string{code(path), value(schema), standard, sentence(schema)})
	}
	return append(rows, children(path, schema, fields)...)
}

// keys are the rows of a file's keys: key, value, meaning.
func keys(path string, schema map[string]any) (rows [][]string) {
	if meaning := sentence(schema); meaning != "" { // else the key above says all
		rows = append(rows, []string{code(path), value(schema), meaning})
	}
	return append(rows, children(path, schema, keys)...)
}

// children are the rows of what is in a schema: members, by their names, members of any name, and elements of lists.
func children(path string, schema map[string]any, rows func(string, map[string]any) [][]string) (all [][]string) {
	below := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		all = append(all, rows(below(name), properties[name].(map[string]any))...)
	}
	if of, _ := schema["additionalProperties"].(map[string]any); of != nil {
		all = append(all, rows(below("NAME"), of)...)
	}
	if items, _ := schema["items"].(map[string]any); items["properties"] != nil {
		all = append(all, children(path+"[]", items, rows)...)
	}
	return all
}

// value says what a schema takes.
func value(schema map[string]any) string {
	if either, _ := schema["anyOf"].([]any); len(either) > 0 {
		return value(either[0].(map[string]any)) + ", or a list of them"
	}
	if allowed := schema["enum"]; allowed != nil {
		var words []string
		if err := json.Unmarshal([]byte(text(allowed)), &words); err == nil {
			return strings.Join(words, " | ")
		}
	}
	if pattern, _ := schema["pattern"].(string); strings.Contains(pattern, "ns|us") {
		return "duration"
	}
	least, most := schema["minimum"], schema["maximum"]
	words := kinds(schema["type"])
	switch {
	case words == "text", least == nil && most == nil: // a text may be written as a number, which has bounds
		return words
	case most == nil || fmt.Sprint(most) == "9223372036854775807":
		return fmt.Sprintf("%s, at least %v", words, least)
	case least == nil:
		return fmt.Sprintf("%s, at most %v", words, most)
	}
	return fmt.Sprintf("%s, %v to %v", words, least, most)
}

// kinds are the types of a schema in words. Where several are taken, the first that is no text is meant: the others are ways to
// write it.
func kinds(types any) string {
	var all []string
	if err := json.Unmarshal([]byte(text(types)), &all); err != nil {
		all = []string{strings.Trim(text(types), `"`)}
	}
	words := map[string]string{
		"integer": "whole number", "number": "number", "boolean": "true | false", "string": "text", "object": "mapping", "array": "list",
	}
	for _, kind := range []string{"array", "object", "string", "integer", "number", "boolean"} {
		if slices.Contains(all, kind) {
			return words[kind]
		}
	}
	return ""
}

func sentence(schema map[string]any) string {
	words, _ := schema["description"].(string)
	return words
}

// text is a value as JSON.
func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // a schema is JSON
	}
	return string(out)
}
