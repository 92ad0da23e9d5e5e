package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/test/require"
)

// TestNoCounterexample looks for a document that the writer's schema accepts and the reader's
// refuses where the comparison has said that there is none.
func TestNoCounterexample(t *testing.T) {
	var compared, compatible, accepted int
	rapid.Check(t, func(t *rapid.T) {
		from := anySchema(t, 3)
		to := from
		if rapid.IntRange(0, 9).Draw(t, "unrelated") == 0 {
			to = anySchema(t, 3)
		} else {
			to = changed(t, from)
		}
		if rapid.IntRange(0, 3).Draw(t, "draft 7") == 0 {
			from = draft7(from, true)
		}
		if rapid.IntRange(0, 3).Draw(t, "to draft 7") == 0 {
			to = draft7(to, true)
		}
		compared++
		writer, reader := compiled(t, from), compiled(t, to)
		if reasons := NewBudget(context.Background()).Breaks(writer, reader, "a", "b"); len(reasons) > 0 {
			return
		}
		compatible++
		for range 30 {
			doc := text(t, anyValue(t, 3, from, to))
			if writer.Check(doc) != nil {
				continue
			}
			accepted++
			if v := reader.Check(doc); v != nil {
				t.Fatalf("%s\nto\n%s\nwas said to be compatible, and %s is refused: %s %s", text(t, from), text(t, to), doc, v.Pointer, v.Msg)
			}
		}
	})
	t.Logf("%d pairs, %d compatible, %d documents", compared, compatible, accepted)
}

// draft7 spells a schema as draft 7 does.
func draft7(v any, root bool) any {
	s, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(s))
	if root {
		out["$schema"] = "http://json-schema.org/draft-07/schema#"
	}
	for k, value := range s {
		switch value := value.(type) {
		case []any:
			if k == "const" {
				out[k] = value
				continue
			}
			if k == "enum" { // each value once
				out[k] = slices.CompactFunc(slices.SortedFunc(slices.Values(value), byText), func(a, b any) bool { return byText(a, b) == 0 })
				continue
			}
			list := make([]any, len(value))
			for i := range value {
				list[i] = draft7(value[i], false)
			}
			if out[k] = list; k == "prefixItems" {
				delete(out, k)
				out["items"] = list
			}
		case map[string]any:
			switch k {
			case "const":
				out[k] = value
			case "properties", "patternProperties", "dependentSchemas", "dependentRequired":
				named := make(map[string]any, len(value))
				for name, one := range value {
					named[name] = draft7(one, false)
				}
				if strings.HasPrefix(k, "dependent") {
					k = "dependencies"
				}
				out[k] = named
			case "items":
				if s["prefixItems"] != nil {
					k = "additionalItems"
				}
				out[k] = draft7(value, false)
			default:
				out[k] = draft7(value, false)
			}
		case bool:
			if k == "items" && s["prefixItems"] != nil {
				k = "additionalItems"
			}
			out[k] = value
		default:
			out[k] = value
		}
	}
	return out
}

func byText(a, b any) int {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Compare(x, y)
}

func text(t *rapid.T, v any) []byte {
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return out
}

func compiled(t *rapid.T, v any) *Schema {
	s, err := Compile(string(text(t, v)))
	if err != nil {
		t.Fatalf("%s: %v", text(t, v), err)
	}
	return s
}

var (
	smallNames    = rapid.SampledFrom([]string{"a", "b", "ab", "c"})
	smallPatterns = rapid.SampledFrom([]string{"^a", "b$", "", "c"})
	smallTypes    = []string{"null", "boolean", "integer", "number", "string", "array", "object"}
	smallNumbers  = rapid.SampledFrom([]float64{-1, 0, 0.5, 1, 1.5, 2, 3})
	smallCounts   = rapid.IntRange(0, 3)
	smallTexts    = rapid.SampledFrom([]string{"", "a", "b", "ab", "cc", "abc"})
)

// anySchema draws a schema of up to some depth.
func anySchema(t *rapid.T, depth int) any {
	if rapid.IntRange(0, 11).Draw(t, "plain") == 0 {
		return rapid.Bool().Draw(t, "schema")
	}
	s := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "keywords") {
		addKeyword(t, s, depth)
	}
	return s
}

func addKeyword(t *rapid.T, s map[string]any, depth int) {
	flat := []string{"type", "type", "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
		"dependentRequired"}
	nested := []string{"properties", "properties", "properties", "patternProperties", "additionalProperties", "additionalProperties",
		"items", "prefixItems",
		"contains", "propertyNames", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"}
	if depth > 0 {
		flat = append(flat, nested...)
	}
	sub := func() any { return anySchema(t, depth-1) }
	list := func() []any {
		l := []any{sub()}
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			l = append(l, sub())
		}
		return l
	}
	switch k := rapid.SampledFrom(flat).Draw(t, "keyword"); k {
	case "type":
		s[k] = rapid.SliceOfNDistinct(rapid.SampledFrom(smallTypes), 1, 3, rapid.ID[string]).Draw(t, k)
	case "enum":
		s[k] = []any{anyValue(t, 1), anyValue(t, 1), anyValue(t, 1)}
	case "const":
		s[k] = anyValue(t, 1)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		s[k] = smallNumbers.Draw(t, k)
	case "multipleOf":
		s[k] = rapid.SampledFrom([]float64{0.5, 1, 1.5, 2}).Draw(t, k)
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		s[k] = smallCounts.Draw(t, k)
	case "pattern":
		s[k] = smallPatterns.Draw(t, k)
	case "uniqueItems":
		s[k] = true
	case "required":
		s[k] = rapid.SliceOfNDistinct(smallNames, 1, 2, rapid.ID[string]).Draw(t, k)
	case "dependentRequired":
		s[k] = map[string]any{smallNames.Draw(t, k): []string{smallNames.Draw(t, k)}}
	case "properties", "dependentSchemas":
		s[k] = map[string]any{smallNames.Draw(t, k): sub(), smallNames.Draw(t, k): sub()}
	case "patternProperties":
		s[k] = map[string]any{smallPatterns.Draw(t, k): sub()}
	case "prefixItems", "allOf", "anyOf", "oneOf":
		s[k] = list()
	case "contains":
		s[k] = sub()
		if rapid.Bool().Draw(t, "counted") {
			s["minContains"], s["maxContains"] = smallCounts.Draw(t, k), smallCounts.Draw(t, k)
		}
	case "if":
		s[k], s["then"], s["else"] = sub(), sub(), sub()
	default:
		s[k] = sub()
	}
}

// changed is a schema with something about it changed.
func changed(t *rapid.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range sortedKeys(v) {
			out[k] = v[k]
		}
		for range rapid.IntRange(1, 2).Draw(t, "changes") {
			keys := sortedKeys(out)
			if len(keys) == 0 {
				addKeyword(t, out, 1)
				continue
			}
			k := rapid.SampledFrom(keys).Draw(t, "changed")
			switch rapid.IntRange(0, 5).Draw(t, "how") {
			case 0:
				delete(out, k)
			case 1:
				addKeyword(t, out, 1)
			default:
				out[k] = changedKeyword(t, k, out[k])
			}
		}
		return out
	case bool:
		return anySchema(t, 1)
	}
	return v
}

func changedKeyword(t *rapid.T, k string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		switch k {
		case "properties", "patternProperties", "dependentSchemas":
			out := make(map[string]any, len(v))
			for _, name := range sortedKeys(v) {
				out[name] = changed(t, v[name])
			}
			return out
		case "const", "dependentRequired":
			return v
		}
		return changed(t, v)
	case []any:
		if k == "enum" {
			return append([]any{anyValue(t, 1)}, v...)
		}
		if k == "const" {
			return v
		}
		out := append([]any{}, v...)
		i := rapid.IntRange(0, len(out)-1).Draw(t, "subschema")
		out[i] = changed(t, out[i])
		if rapid.IntRange(0, 3).Draw(t, "longer") == 0 {
			out = append(out, anySchema(t, 1))
		}
		return out
	case float64:
		if k == "multipleOf" {
			return 0.5
		}
		return smallNumbers.Draw(t, k)
	case int:
		return smallCounts.Draw(t, k)
	}
	return v
}

// anyValue draws a document, out of the schemas' own values sometimes.
func anyValue(t *rapid.T, depth int, of ...any) any {
	var own []any
	for _, s := range of {
		if m, ok := s.(map[string]any); ok {
			own = append(own, m["const"])
			values, _ := m["enum"].([]any)
			own = append(own, values...)
		}
	}
	if len(own) > 0 && rapid.IntRange(0, 3).Draw(t, "own") == 0 {
		return rapid.SampledFrom(own).Draw(t, "value")
	}
	most := 6
	if depth == 0 {
		most = 4
	}
	switch rapid.IntRange(0, most).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "boolean")
	case 2, 3:
		return smallNumbers.Draw(t, "number")
	case 4:
		return smallTexts.Draw(t, "text")
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			list = append(list, anyValue(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[smallNames.Draw(t, "name")] = anyValue(t, depth-1)
	}
	return object
}
