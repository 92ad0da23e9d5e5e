package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/test/require"
)

// list is n of something, which is told its place where it has a %d.
func list(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "%d", fmt.Sprint(i+100_000))
	}
	return strings.Join(all, ",")
}

// doubling has two more ways to its end with each level.
func doubling(levels int) string {
	var defs []string
	for i := range levels {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s,"d%d":{"type":"number"}}}`, strings.Join(defs, ","), levels)
}

// Each of these took a check of 10 KB seconds.
func TestCostlySchemasAreRefused(t *testing.T) {
	const tooMuch = "needs too many comparisons for one value"
	for _, tc := range []struct{ name, schema, want string }{
		{"numbers to compare", `{"items":{"enum":[` + list(5000, "%d") + `]}}`, `at "/items" ` + tooMuch},
		{"large numbers to compare", `{"items":{"enum":[` + list(50, "1e998") + `]}}`, `at "/items" ` + tooMuch},
		{"numbers in objects to compare", `{"items":{"enum":[` + list(500, `{"a":[%d,%d]}`) + `]}}`, `at "/items" ` + tooMuch},
		{"numbers of a const", `{"const":[` + list(1000, "%d") + `]}`, `at "" ` + tooMuch},
		{"texts to compare", `{"enum":[` + list(50_000, `"a"`) + `,` + list(14_000, `""`) + `]}`, `at "" ` + tooMuch},
		{"subschemas", `{"items":{"oneOf":[` + list(2000, `{"type":"string"}`) + `]}}`, `at "/items" ` + tooMuch},
		{"subschemas of subschemas", `{"anyOf":[` + list(40, `{"anyOf":[`+list(40, `{"type":"string"}`)+`]}`) + `]}`, `at "" ` + tooMuch},
		{"subschemas that meet inside", `{"allOf":[` + list(600, `{"properties":{"a":{"maximum":1}}}`) + `,{"required":["a"]}]}`, ""},
		{"subschemas that meet inside, more", `{"allOf":[` + list(1100, `{"properties":{"a":{"maximum":1}}}`) + `]}`, tooMuch},
		{"names that are missing", `{"items":{"required":[` + list(20_000, `"k%d"`) + `]}}`, `at "/items" ` + tooMuch},
		{"names that depend", `{"dependentRequired":{"a":[` + list(20_000, `"k%d"`) + `]}}`, tooMuch},
		{"a pattern", `{"pattern":"(a?){1000}b"}`, "it repeats too much"},
		{"patterns of one text", `{"allOf":[` + list(30, `{"pattern":"(a?b){15}"}`) + `]}`, tooMuch},
		{"patterns of names", `{"patternProperties":{` + list(400, `"a*%d$":true`) + `}}`, tooMuch},
		{"ways", doubling(60), tooMuch},
		{"few ways", doubling(5), ""},
		{"itself", `{"$ref":"#"}`, `at "" refers to itself`},
		{"a tree", `{"properties":{"children":{"items":{"$ref":"#"}}}}`, `at "" refers to itself`},
		{"in a circle", `{"$ref":"#/$defs/a","$defs":{"a":{"not":{"$ref":"#/$defs/b"}},` +
			`"b":{"additionalProperties":{"$ref":"#/$defs/a"}}}}`, `at "/$defs/a" refers to itself`},
		{"a circle that nothing leads to", `{"$defs":{"a":{"$ref":"#/$defs/a"}}}`, ""},
		{"twice is no circle", `{"properties":{"a":{"$ref":"#/$defs/n"},"b":{"items":{"$ref":"#/$defs/n"}}},` +
			`"$defs":{"n":{"type":"number"}}}`, ""},
		{"dynamic", `{"$dynamicAnchor":"node","properties":{"next":{"$dynamicRef":"#node"}}}`, `at "/properties/next" has a $dynamicRef`},
		{"recursive", `{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"next":{"$recursiveRef":"#"}}}`,
			`at "/properties/next" has a $dynamicRef or a $recursiveRef`},
		{"the meta-schema", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "has a $dynamicRef"},
		{"many texts", `{"properties":{"airport":{"enum":[` + list(10_000, `"%d"`) + `]}}}`, ""},
		{"many kinds of events", `{"oneOf":[` + list(100,
			`{"properties":{"type":{"const":"%d"},"lines":{"items":{"type":"object"}}},"required":["type"]}`) + `]}`, ""},
	} {
		if _, err := Compile(tc.schema); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %.300v\nwant %q", tc.name, err, tc.want)
		}
	}
}

// A payload of many values, or of long texts, is not held to a schema that compares each with much.
func TestCostlyPayloadsAreRefused(t *testing.T) {
	kinds := `{"items":{"anyOf":[` + list(100, `{"const":"%d"}`) + `]}}`
	email := `{"items":{"pattern":"^[a-z0-9._%+-]{1,64}@([a-z0-9-]{1,63}\\.){1,4}[a-z]{2,24}$"}}`
	for _, tc := range []struct{ name, schema, payload, msg string }{
		{"some values", kinds, "[" + list(4000, `"100099"`) + "]", ""},
		{"many values", kinds, "[" + list(6000, `"100099"`) + "]", tooCostly},
		{"many values inside", kinds, `[{"a":[` + list(6000, "1") + "]}]", tooCostly},
		{"large numbers", kinds, "[" + list(600, "1e999") + "]", tooCostly},
		{"many values and few subschemas", `{"items":{"type":"object","properties":{"n":{"type":"number"}}}}`, "[" +
			list(50_000, `{"n":1}`) + "]", ""},
		{"texts", email, "[" + list(10_000, `"a@b.de"`) + "]", ""},
		{"long texts", email, `["` + strings.Repeat("a", 1<<20) + `"]`, tooCostly},
	} {
		v := compile(t, tc.schema).Check([]byte(tc.payload))
		if got := v; (got == nil) != (tc.msg == "") || got != nil && got.Msg != tc.msg {
			t.Errorf("%s: %+v, want %q", tc.name, got, tc.msg)
		}
	}
}

// drawSchema draws a schema that counts its evaluations: by a format, which the library looks at
// once each time. It refers to the schemas of the definitions.
func drawSchema(t *rapid.T, draft string, depth int, defs ...string) map[string]any {
	schema := map[string]any{"format": "counted"}
	below := func() any {
		switch {
		case len(defs) > 0 && rapid.Bool().Draw(t, "refer"):
			return map[string]any{"format": "counted", "$ref": "#/$defs/" + rapid.SampledFrom(defs).Draw(t, "target")}
		case depth == 0:
			return map[string]any{"format": "counted"}
		}
		return drawSchema(t, draft, depth-1, defs...)
	}
	some := func() []any { return []any{below(), below()} }
	keywords := []string{"none", "allOf", "anyOf", "oneOf", "not", "if", "properties", "patternProperties", "additionalProperties",
		"propertyNames", "items", "contains", "prefix", "dependencies", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"}
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(keywords), 1, 3, rapid.ID).Draw(t, "keywords") {
		switch k {
		case "allOf", "anyOf", "oneOf":
			schema[k] = some()
		case "if":
			schema["if"], schema["then"], schema["else"] = below(), below(), below()
		case "properties", "dependencies", "dependentSchemas":
			schema[k] = map[string]any{"p": below(), "q": below()}
		case "patternProperties":
			schema[k] = map[string]any{"p": below(), "p|q": below()}
		case "prefix":
			if draft == "2020-12" {
				schema["prefixItems"] = some()
			} else {
				schema["items"], schema["additionalItems"] = some(), below()
			}
		case "none":
		default:
			schema[k] = below()
		}
	}
	return schema
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

// No value is evaluated more often than the cost of its schema says.
func TestNoEvaluationIsMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draft := rapid.SampledFrom([]string{"2019-09", "2020-12"}).Draw(t, "draft")
		doc := drawSchema(t, draft, 1, "a", "b")
		doc["$schema"] = "https://json-schema.org/draft/" + draft + "/schema"
		doc["$defs"] = map[string]any{"a": drawSchema(t, draft, 1, "b"), "b": drawSchema(t, draft, 1)}
		evaluations := 0
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		c.RegisterFormat(&jsonschema.Format{Name: "counted", Validate: func(any) error { evaluations++; return nil }})
		require.NoError(t, c.AddResource(base, doc))
		s, err := c.Compile(base)
		require.NoError(t, err)
		cost, err := costOf(s)
		require.NoError(t, err)
		v := drawValue(t, 3)
		if _ = s.Validate(v); evaluations*schemaSteps > sizeOf(v)*cost.value {
			t.Errorf("%d evaluations of %d values, and %d steps a value were reckoned", evaluations, sizeOf(v), cost.value)
		}
	})
}

// BenchmarkCheckCostly is near the most that a check may take.
func BenchmarkCheckCostly(b *testing.B) {
	for name, of := range map[string][2]string{
		"numbers":    {`{"items":{"enum":[` + list(450, "%d") + `]}}`, "[" + list(540, "1") + "]"},
		"subschemas": {`{"items":{"oneOf":[` + list(90, `{"type":"string"}`) + `]}}`, "[" + list(5000, "1") + "]"},
		"minimum":    {`{"items":{"allOf":[` + list(90, `{"minimum":3}`) + `]}}`, "[" + list(5000, "5") + "]"},
		"names":      {`{"items":{"required":[` + list(7000, `"k%d"`) + `]}}`, "[" + list(560, "{}") + "]"},
		"texts":      {`{"items":{"enum":[` + list(25_000, `"k%d"`) + `]}}`, "[" + list(1200, `"k200000"`) + "]"},
		"pattern":    {`{"pattern":"(a?){150}b"}`, `"` + strings.Repeat("a", 100_000) + `"`},
	} {
		s := compile(b, of[0])
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if v := s.Check([]byte(of[1])); v != nil && v.Msg == tooCostly {
					b.Fatal(v)
				}
			}
		})
	}
}
