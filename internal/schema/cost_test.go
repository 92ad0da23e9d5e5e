package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

func branch(op string) string {
	return fmt.Sprintf(`{"type":"object","properties":{"op":{"const":%q},"l":{"$ref":"#/$defs/e"}},"required":["op","l"]}`, op)
}

// expression calls itself in three branches, which only their op tells apart.
var expression = `{"$ref":"#/$defs/e","$defs":{"e":{"oneOf":[` +
	branch("add") + `,` + branch("mul") + `,` + branch("sub") + `,{"type":"number"}]}}}`

func nested(depth int, innermost string) string {
	return strings.Repeat(`{"op":"add","l":`, depth) + innermost + strings.Repeat(`}`, depth)
}

// tree has a number of nodes, each with up to ten below it.
func tree(nodes int) string {
	if nodes == 1 {
		return `{"name":"leaf"}`
	}
	var below []string
	for left := nodes - 1; left > 0; {
		n := min(max((nodes-1)/10, 1), left)
		below = append(below, tree(n))
		left -= n
	}
	return `{"name":"inner","children":[` + strings.Join(below, ",") + `]}`
}

const treeSchema = `{"type":"object","required":["name"],"properties":{"name":{"type":"string"},
 "children":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}`

// doubling has no cycle, and two more ways to its end with each level.
func doubling(levels int) string {
	var defs []string
	for i := range levels {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s,"d%d":{"type":"number"}}}`, strings.Join(defs, ","), levels)
}

func TestCostlyPayloadsAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, schema, payload, pointer, msg string }{
		{"a few levels", expression, nested(5, `1`), "-", ""},
		{"a few levels, wrong", expression, nested(5, `true`), "", "fits none of the forms of oneOf"},
		{"many levels", expression, nested(12, `1`), "", tooCostly},
		{"very many levels", expression, nested(60, `1`), "", tooCostly},
		{"a tree", treeSchema, tree(1000), "-", ""},
		{"a large tree", treeSchema, tree(20_000), "-", ""},
		{"a deep tree", treeSchema, strings.Repeat(`{"name":"n","children":[`, 250) + tree(1) + strings.Repeat(`]}`, 250), "-", ""},
		{"no cycle, few ways", doubling(5), `"x"`, "", "is of type string; allowed is number"},
		{"no cycle, too many ways", doubling(60), `1`, "", tooCostly},
		{"nothing but a circle", `{"$ref":"#"}`, `1`, "", "is under a $ref that leads back to itself"},
		{"the meta-schema", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, treeSchema, "-", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := compile(t, tc.schema).Check([]byte(tc.payload))
			if v == nil && tc.pointer != "-" || v != nil && (v.Pointer != tc.pointer || v.Msg != tc.msg) {
				t.Errorf("got %+v, want %q %q", v, tc.pointer, tc.msg)
			}
		})
	}
}

// What b calls is its own form where b is alone, which is cheap, and that of the
// schema around it here, which calls b three times.
const (
	viaDynamicRef = `{"$ref":"b","$defs":{
 "b":{"$id":"b","$dynamicRef":"#x","$defs":{"x":{"$dynamicAnchor":"x"}}},
 "x y":{"$dynamicAnchor":"x","properties":{"l":{"allOf":[{"$ref":"b"},{"$ref":"b"},{"$ref":"b"}]}}}}}`
	viaRecursiveRef = `{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,
 "allOf":[{"$ref":"b"},{"$ref":"b"},{"$ref":"b"}],
 "$defs":{"b":{"$id":"b","$recursiveAnchor":true,"properties":{"l":{"$recursiveRef":"#"}}}}}`
)

func TestDynamicReferencesAreFollowed(t *testing.T) {
	for _, text := range []string{viaDynamicRef, viaRecursiveRef} {
		s := compile(t, text)
		if v := s.Check([]byte(nested(3, `1`))); v != nil {
			t.Errorf("%.30s: a few levels: %+v", text, v)
		}
		if v, want := s.Check([]byte(nested(20, `1`))), (Violation{Msg: tooCostly}); v == nil || *v != want {
			t.Errorf("%.30s: many levels: %+v", text, v)
		}
	}
}

func TestCountingIsCheap(t *testing.T) {
	for _, tc := range []struct {
		schema, payload string
		steps           int
	}{
		{expression, nested(12, `1`), 200},
		{expression, nested(60, `1`), 1000},
		{doubling(60), `1`, 400},
		{treeSchema, tree(1000), 6000},
	} {
		v, err := decode([]byte(tc.payload))
		if err != nil {
			t.Fatal(err)
		}
		c := newCounter(compile(t, tc.schema).cost)
		n := c.count(c.root, v)
		if c.steps > tc.steps {
			t.Errorf("%.40s on %.40s: %d steps to count %d evaluations, want at most %d", tc.schema, tc.payload, c.steps, n, tc.steps)
		}
	}
}

func TestPlainSchemasAreNotCounted(t *testing.T) {
	for text, plain := range map[string]bool{
		`true`: true, order: true, doubling(5): true,
		doubling(60): false, treeSchema: false, expression: false, `{"$ref":"#"}`: false,
		`{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}`: false,
	} {
		if s := compile(t, text); s.cost.plain != plain {
			t.Errorf("%.60s: plain is %v", text, s.cost.plain)
		}
	}
}

// A form is a schema that counts its evaluations: by a format, which the
// library looks at once each time.
func drawForm(t *rapid.T, draft string, depth int) map[string]any {
	form := map[string]any{"format": "counted"}
	below := func() any {
		if depth == 0 || rapid.Bool().Draw(t, "refer") {
			target := rapid.SampledFrom([]string{"#/$defs/a", "#/$defs/b", "#"}).Draw(t, "target")
			return map[string]any{"format": "counted", "$ref": target}
		}
		return drawForm(t, draft, depth-1)
	}
	some := func() []any { return []any{below(), below()} }
	keywords := []string{"none", "allOf", "anyOf", "oneOf", "not", "if", "properties", "patternProperties", "additionalProperties",
		"propertyNames", "items", "contains", "prefix", "dependencies", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems",
		"dynamic"}
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(keywords), 1, 2, rapid.ID).Draw(t, "keywords") {
		switch k {
		case "allOf", "anyOf", "oneOf":
			form[k] = some()
		case "if":
			form["if"], form["then"], form["else"] = below(), below(), below()
		case "properties", "dependencies", "dependentSchemas":
			form[k] = map[string]any{"p": below(), "q": below()}
		case "patternProperties":
			form[k] = map[string]any{"p": below(), "p|q": below()}
		case "prefix":
			if draft == "2020-12" {
				form["prefixItems"] = some()
			} else {
				form["items"], form["additionalItems"] = some(), below()
			}
		case "dynamic":
			if draft == "2020-12" {
				form["$dynamicRef"] = "#x"
			} else {
				form["$recursiveRef"] = "#"
			}
		case "none":
		default:
			form[k] = below()
		}
	}
	return form
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 3
	if depth == 0 {
		kinds = 1
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 1:
		return []any{drawValue(t, depth-1), drawValue(t, depth-1)}
	case 2:
		return map[string]any{"p": drawValue(t, depth-1), "q": drawValue(t, 0), "r": drawValue(t, 0)}
	}
	return json.Number("1")
}

func TestNoEvaluationIsMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draft := rapid.SampledFrom([]string{"2019-09", "2020-12"}).Draw(t, "draft")
		doc := drawForm(t, draft, 1)
		doc["$schema"] = "https://json-schema.org/draft/" + draft + "/schema"
		doc["$recursiveAnchor"] = true
		a, b := drawForm(t, draft, 1), drawForm(t, draft, 0)
		doc["$defs"] = map[string]any{"a": a, "b": b}
		a["$dynamicAnchor"] = "x"
		if rapid.Bool().Draw(t, "resource") {
			// What leads into b finds another x.
			b["$id"], b["$defs"] = "sluice:///b", map[string]any{"x": map[string]any{"format": "counted", "$dynamicAnchor": "x",
				"items": map[string]any{"$ref": "schema"}}, "a": map[string]any{"$ref": "schema"}, "b": map[string]any{"$ref": "schema"}}
		}

		evaluations := 0
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		c.RegisterFormat(&jsonschema.Format{Name: "counted", Validate: func(any) error { evaluations++; return nil }})
		if err := c.AddResource(base, doc); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(base)
		if err != nil {
			t.Skip(err)
		}
		v := drawValue(t, 2)
		counted := newCounter(costOf(s, dynamicAnchors(c, doc, nil)))
		n := counted.count(s, v)
		if n > 100_000 {
			return // as it may well be; the library would take too long to tell
		}
		if _ = s.Validate(v); evaluations > n {
			t.Errorf("%d evaluations, and %d were counted", evaluations, n)
		}
	})
}

func BenchmarkCheckTree(b *testing.B) {
	s, payload := compile(b, treeSchema), []byte(tree(1000))
	b.ReportAllocs()
	for b.Loop() {
		if v := s.Check(payload); v != nil {
			b.Fatal(v)
		}
	}
}

// BenchmarkCheckCostly is near the most that a check may take: what fits the
// last branch is held to each other one first, all the way down.
func BenchmarkCheckCostly(b *testing.B) {
	s, payload := compile(b, expression), []byte(strings.ReplaceAll(nested(9, `1`), "add", "sub"))
	v, err := decode(payload)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if v := s.Check(payload); v != nil && v.Msg == tooCostly {
			b.Fatal(v)
		}
	}
	b.ReportMetric(float64(newCounter(s.cost).count(s.compiled, v)), "evaluations")
}
