package schema

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The changes come from the tables that Confluent's Schema Registry is tested with, where
// "compatible" means that the updated schema reads what was written with the original one:
//
//	https://github.com/confluentinc/schema-registry/tree/master/json-schema-provider/src/test/resources
//	diff-schema-examples-2020-12.json and diff-combined-schema-examples-2020-12.json
//
// and
// https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html#json-schema-compatibility-rules.
// Where the registry goes by which keywords changed and the documents say otherwise, the documents
// count, and differs says so.
var changes = []struct {
	what, from, to string
	ok             bool
	differs        string // why, where the registry's table says the opposite
}{
	{"to the empty schema", `{"properties":{}}`, `{}`, true, ""},
	{"annotations", `{"title":"a","description":"b","format":"email"}`, `{"title":"c","default":1,"format":"date"}`, true, ""},
	{"another type", `{"type":"object"}`, `{"type":"array"}`, false, ""},
	{"minLength up", `{"type":"string","minLength":10}`, `{"type":"string","minLength":11}`, false, ""},
	{"minLength down", `{"type":"string","minLength":11}`, `{"type":"string","minLength":10}`, true, ""},
	{"maxLength up", `{"type":"string","maxLength":10}`, `{"type":"string","maxLength":12}`, true, ""},
	{"maxLength down", `{"type":"string","maxLength":12}`, `{"type":"string","maxLength":10}`, false, ""},
	{"pattern removed", `{"type":"string","pattern":"uuid"}`, `{"type":"string"}`, true, ""},
	{"pattern changed", `{"type":"string","pattern":"date-time"}`, `{"type":"string","pattern":"uuid"}`, false, ""},
	{"pattern kept", `{"type":"string","pattern":"date-time"}`, `{"type":"string","pattern":"date-time"}`, true, ""},
	{"maximum removed", `{"type":"number","maximum":10}`, `{"type":"number"}`, true, ""},
	{"maximum up", `{"type":"number","maximum":10}`, `{"type":"number","maximum":11}`, true, ""},
	{"maximum down", `{"type":"number","maximum":11}`, `{"type":"number","maximum":10}`, false, ""},
	{"minimum removed", `{"type":"number","minimum":10}`, `{"type":"number"}`, true, ""},
	{"minimum up", `{"type":"number","minimum":10}`, `{"type":"number","minimum":11}`, false, ""},
	{"minimum down", `{"type":"number","minimum":11}`, `{"type":"number","minimum":10}`, true, ""},
	{"multipleOf removed", `{"type":"number","multipleOf":10}`, `{"type":"number"}`, true, ""},
	{"multipleOf reduced", `{"type":"number","multipleOf":10}`, `{"type":"number","multipleOf":2}`, true, ""},
	{"multipleOf changed", `{"type":"number","multipleOf":10}`, `{"type":"number","multipleOf":11}`, false, ""},
	{"number to integer", `{"type":"number"}`, `{"type":"integer"}`, false, ""},
	{"integer to number", `{"type":"integer"}`, `{"type":"number"}`, true, ""},
	{"a narrower not", `{"not":{"type":"number"}}`, `{"not":{"type":"integer"}}`, true, ""},
	{"a wider not", `{"not":{"type":"integer"}}`, `{"not":{"type":"number"}}`, false, ""},
	{"enum changed in allOf", `{"allOf":[{"type":"string"},{"enum":["red"]}]}`, `{"allOf":[{"type":"string"},{"enum":["blue"]}]}`, false, ""},
	{"enum extended in allOf", `{"allOf":[{"type":"string"},{"enum":["red"]}]}`,
		`{"allOf":[{"enum":["red","blue"]},{"type":"string"}]}`, true, ""},
	{"more types", `{"type":["object"]}`, `{"type":["object","array"]}`, true, ""},
	{"another subschema in oneOf", `{"oneOf":[{"type":"string"}]}`, `{"oneOf":[{"type":"number"}]}`, false, ""},
	{"a subschema added to oneOf", `{"oneOf":[{"type":"string"}]}`, `{"oneOf":[{"type":"number"},{"type":"string"}]}`, true, ""},
	{"a property for another, open", `{"properties":{"foo":{"type":"string"}}}`, `{"properties":{"bar":{"type":"string"}}}`, false, ""},
	{"a property's type", `{"properties":{"foo":{"type":"string"}}}`, `{"properties":{"foo":{"type":"number"}}}`, false, ""},
	{"an optional property added, closed", `{"properties":{"foo":{"type":"string"}},"additionalProperties":false}`,
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"number"}},"additionalProperties":false}`, true, ""},
	{"a property added that a pattern covers",
		`{"properties":{"foo":{"type":"string"}},"additionalProperties":false,"patternProperties":{"^S_":{"type":"string"},` +
			`"^I_":{"type":"integer"}}}`,
		`{"properties":{"foo":{"type":"string"},"I_123":{"type":"number"}},"additionalProperties":false,` +
			`"patternProperties":{"^S_":{"type":"string"},"^I_":{"type":"integer"}}}`, true, ""},
	{"a property added that additionalProperties covers", `{"properties":{"foo":{"type":"string"}},"additionalProperties":{"type":"string"}}`,
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"string"}},"additionalProperties":{"type":"string"}}`, true, ""},
	{"a property added that additionalProperties does not cover",
		`{"properties":{"foo":{"type":"string"}},"additionalProperties":{"type":"string"}}`,
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"number"}},"additionalProperties":{"type":"string"}}`, false, ""},
	{"a required property added", `{"properties":{"foo":{"type":"string"}},"additionalProperties":{"type":"string"}}`,
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"string"}},"required":["bar"],"additionalProperties":{"type":"string"}}`,
		false, ""},
	{"a property removed that a pattern covers",
		`{"properties":{"foo":{"type":"string"},"I_123":{"type":"integer"}},"additionalProperties":false}`,
		`{"properties":{"foo":{"type":"string"}},"additionalProperties":false,"patternProperties":{"^S_":{"type":"string"},` +
			`"^I_":{"type":"number"}}}`, true, ""},
	{"a property removed that additionalProperties covers",
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"string"}},"additionalProperties":false}`,
		`{"properties":{"foo":{"type":"string"}},"additionalProperties":{"type":"string"}}`, true, ""},
	{"a property removed that additionalProperties does not cover",
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"number"}},"additionalProperties":false}`,
		`{"properties":{"foo":{"type":"string"}},"additionalProperties":{"type":"string"}}`, false, ""},
	{"a property removed that a oneOf covers", `{"properties":{"bar":{"type":"string"}},"additionalProperties":false}`,
		`{"additionalProperties":{"oneOf":[{"type":"null"},{"type":"string"}]}}`, true, ""},
	{"a property removed that an equal oneOf covers",
		`{"properties":{"bar":{"oneOf":[{"type":"null"},{"type":"string"}]}},"additionalProperties":false}`,
		`{"additionalProperties":{"oneOf":[{"type":"null"},{"type":"string"}]}}`, true, ""},
	{"an optional property added, open", `{"properties":{"foo":{"type":"string"}}}`,
		`{"properties":{"foo":{"type":"string"},"bar":{"type":"number"}}}`, false, ""},
	{"a property removed, open", `{"properties":{"foo":{"type":"string"},"bar":{"type":"number"}}}`,
		`{"properties":{"foo":{"type":"string"}}}`, true, ""},
	{"a property removed, closed", `{"properties":{"foo":{},"bar":{}},"additionalProperties":false}`,
		`{"properties":{"foo":{}},"additionalProperties":false}`, false, ""},
	{"a property's type inside of oneOf", `{"oneOf":[{"properties":{"foo":{"type":"string"}}}]}`,
		`{"oneOf":[{"properties":{"foo":{"type":"number"}}}]}`, false, ""},
	{"oneOf to allOf", `{"oneOf":[{"type":"string"}]}`, `{"allOf":[{"type":"string"}]}`, true, "with one subschema the two are the same"},
	{"dependentRequired turned round", `{"dependentRequired":{"foo":["bar"]}}`, `{"dependentRequired":{"bar":["foo"]}}`, false, ""},
	{"a dependent schema removed", `{"dependentSchemas":{"foo":{"type":"string"},"bar":{"type":"string"}}}`,
		`{"dependentSchemas":{"foo":{"type":"string"}}}`, true, ""},
	{"a dependent schema changed", `{"dependentSchemas":{"foo":{"required":["a"]}}}`,
		`{"dependentSchemas":{"foo":{"required":["b"]}}}`, false, ""},
	{"a dependent schema of another type that cannot be", `{"dependentSchemas":{"foo":{"type":"string"}}}`,
		`{"dependentSchemas":{"foo":{"type":"number"}}}`, true,
		"no object is a string, so that foo may be in none in both"},
	{"a dependent schema for another", `{"dependentSchemas":{"foo":{"type":"string"}}}`,
		`{"dependentSchemas":{"bar":{"type":"string"}}}`, false, ""},
	{"required removed", `{"properties":{"foo":{"type":"string"}},"required":["foo"]}`, `{"properties":{"foo":{"type":"string"}}}`, true, ""},
	{"required added", `{"properties":{"foo":{"type":"string"}}}`, `{"properties":{"foo":{"type":"string"}},"required":["foo"]}`, false, ""},
	{"another required, which is not listed", `{"properties":{"foo":{"type":"string"}},"required":["foo"]}`,
		`{"properties":{"foo":{"type":"string"}},"required":["bar"]}`, false,
		"an object with foo alone is refused"},
	{"maxProperties removed", `{"maxProperties":1}`, `{"properties":{}}`, true, ""},
	{"maxProperties up", `{"maxProperties":1}`, `{"maxProperties":2}`, true, ""},
	{"maxProperties down", `{"maxProperties":2}`, `{"maxProperties":1}`, false, ""},
	{"minProperties removed", `{"minProperties":2}`, `{}`, true, ""},
	{"minProperties up", `{"minProperties":1}`, `{"minProperties":2}`, false, ""},
	{"minProperties down", `{"minProperties":2}`, `{"minProperties":1}`, true, ""},
	{"items added", `{"type":"array"}`, `{"type":"array","items":{"type":"string"}}`, false, ""},
	{"items removed", `{"type":"array","items":{"type":"string"}}`, `{"type":"array"}`, true, ""},
	{"prefixItems removed", `{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}]}`, `{"type":"array"}`, true, ""},
	{"an item added that items covers", `{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"string"}}`,
		`{"type":"array","prefixItems":[{"type":"string"},{"type":"string"}],"items":{"type":"string"}}`, true, ""},
	{"an item added that items does not cover", `{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"string"}}`,
		`{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":{"type":"string"}}`, false, ""},
	{"an item removed that items covers", `{"type":"array","prefixItems":[{"type":"string"},{"type":"string"}],"items":{"type":"string"}}`,
		`{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"string"}}`, true, ""},
	{"an item removed that items does not cover",
		`{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":{"type":"string"}}`,
		`{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"string"}}`, false, ""},
	{"an item's type", `{"type":"array","prefixItems":[{"type":"string"}]}`, `{"type":"array","prefixItems":[{"type":"number"}]}`, false, ""},
	{"maxItems down", `{"type":"array","maxItems":2}`, `{"type":"array","maxItems":1}`, false, ""},
	{"maxItems up", `{"type":"array","maxItems":1}`, `{"type":"array","maxItems":2}`, true, ""},
	{"minItems removed", `{"type":"array","minItems":1}`, `{"type":"array"}`, true, ""},
	{"minItems up", `{"type":"array","minItems":1}`, `{"type":"array","minItems":2}`, false, ""},
	{"minItems down", `{"type":"array","minItems":2}`, `{"type":"array","minItems":1}`, true, ""},
	{"uniqueItems removed", `{"type":"array","uniqueItems":true}`, `{"type":"array"}`, true, ""},
	{"uniqueItems added", `{"type":"array"}`, `{"type":"array","uniqueItems":true}`, false, ""},
	{"what is referred to", `{"items":{"$ref":"#/definitions/r"},"definitions":{"r":{"type":"string"}}}`,
		`{"items":{"$ref":"#/definitions/r"},"definitions":{"r":{"type":"number"}}}`, false, ""},
	{"into a reference", `{"type":"string"}`, `{"$ref":"#/$defs/r","$defs":{"r":{"type":"string"}}}`, true, ""},
	{"out of a reference", `{"$ref":"#/$defs/r","$defs":{"r":{"type":"string"}}}`, `{"type":"string"}`, true, ""},
	{"additionalProperties opened", `{"additionalProperties":false}`, `{"properties":{}}`, true, ""},
	{"additionalProperties closed", `{"additionalProperties":true}`, `{"additionalProperties":false}`, false, ""},
	{"additionalProperties narrowed", `{"additionalProperties":true}`, `{"additionalProperties":{"type":"number"}}`, false, ""},
	{"a property that may be anything added, open", `{"additionalProperties":true}`,
		`{"additionalProperties":true,"properties":{"foo":true}}`, true, ""},
	{"a property that may not be added, closed", `{"additionalProperties":false}`,
		`{"additionalProperties":false,"properties":{"foo":false}}`, true, ""},
	{"a property that may not be removed, closed", `{"additionalProperties":false,"properties":{"foo":false}}`,
		`{"additionalProperties":false}`, true, ""},
	{"additionalProperties of another type", `{"additionalProperties":{"type":"string"}}`,
		`{"additionalProperties":{"type":"number"}}`, false, ""},
	{"items closed", `{"items":true}`, `{"items":false}`, false, ""},
	{"an item that may be anything added", `{"prefixItems":[{"type":"number"}],"items":true}`,
		`{"prefixItems":[{"type":"number"},true],"items":true}`, true, ""},

	// Combined schemas.
	{"allOf in another order", `{"allOf":[{"enum":["one","two"]},{"type":"string"},{"maxLength":5}]}`,
		`{"allOf":[{"maxLength":5},{"enum":["one","two"]},{"type":"string"}]}`, true, ""},
	{"allOf with another type", `{"allOf":[{"enum":["one"]},{"type":"string"}]}`, `{"allOf":[{"enum":["one"]},{"type":"number"}]}`, false, ""},
	{"allOf with one twice", `{"allOf":[{"type":"string"}]}`, `{"allOf":[{"type":"string"},{"type":"string"}]}`, true, ""},
	{"oneOf with wider subschemas", `{"oneOf":[{"type":"string","maxLength":5}]}`,
		`{"oneOf":[{"type":"boolean"},{"type":"number"},{"title":"t","type":"string","maxLength":8}]}`, true, ""},
	{"a subschema removed from oneOf", `{"oneOf":[{"type":"number"},{"type":"string"}]}`, `{"oneOf":[{"type":"string"}]}`, false, ""},
	{"a subschema removed from allOf", `{"allOf":[{"enum":["one"]},{"type":"string"}]}`, `{"allOf":[{"type":"string"}]}`, true, ""},
	{"a subschema added to allOf", `{"allOf":[{"type":"string"}]}`, `{"allOf":[{"enum":["one"]},{"type":"string"}]}`, false, ""},
	{"oneOf to anyOf", `{"oneOf":[{"type":"string"}]}`, `{"anyOf":[{"type":"number"},{"type":"string"}]}`, true, ""},
	{"allOf to anyOf", `{"allOf":[{"type":"string"}]}`, `{"anyOf":[{"type":"number"},{"type":"string"}]}`, true, ""},
	{"one subschema to anyOf", `{"type":"string"}`, `{"anyOf":[{"type":"number"},{"type":"string"}]}`, true, ""},
	{"one subschema to oneOf", `{"type":"string"}`, `{"oneOf":[{"type":"number"},{"type":"string"}]}`, true, ""},
	{"one subschema to allOf", `{"type":"string"}`, `{"allOf":[{"type":"string"}]}`, true, ""},
	{"one subschema to allOf with another", `{"type":"string"}`, `{"allOf":[{"type":"number"},{"type":"string"}]}`, false, ""},
	{"a subschema added to oneOf that fits the same", `{"oneOf":[{"type":"string"}]}`, `{"oneOf":[{"type":"string"},{"minLength":2}]}`, false,
		"a text of two characters fits both, which oneOf refuses"},

	// More, of no table.
	{"enum extended", `{"enum":["a",1]}`, `{"enum":["a",1.0,null]}`, true, ""},
	{"enum narrowed", `{"enum":["a","b"]}`, `{"enum":["a"]}`, false, ""},
	{"enum to what its values fit", `{"enum":["a","bb"]}`, `{"type":"string","maxLength":2,"pattern":"^[ab]+$"}`, true, ""},
	{"const to enum", `{"const":{"a":[1]}}`, `{"enum":[{"a":[1.0]}]}`, true, ""},
	{"boolean to enum", `{"type":"boolean"}`, `{"enum":[true,false,"maybe"]}`, true, ""},
	{"types to subschemas", `{"type":["string","null"]}`, `{"anyOf":[{"type":"null"},{"type":"string"}]}`, true, ""},
	{"a nullable enum", `{"anyOf":[{"enum":["a"]},{"type":"null"}]}`, `{"enum":["a",null]}`, true, ""},
	{"integers between others", `{"type":"integer","exclusiveMinimum":0,"maximum":9.5}`, `{"type":"number","minimum":1,"maximum":9}`,
		true, ""},
	{"exclusive limits", `{"type":"number","minimum":0}`, `{"type":"number","exclusiveMinimum":0}`, false, ""},
	{"integers are multiples of 0.5", `{"type":"integer"}`, `{"multipleOf":0.5}`, true, ""},
	{"tagged subschemas, one added", `{"type":"object","oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},` +
		`{"properties":{"k":{"const":"b"}},"required":["k"]}]}`,
		`{"type":"object","oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},{"properties":{"k":{"const":"b"}},` +
			`"required":["k"]},{"properties":{"k":{"const":"c"}},"required":["k"]}]}`, true, ""},
	{"tagged subschemas, one wider", `{"type":"object","oneOf":[{"properties":{"k":{"const":"a"},"n":{"maximum":1}},` +
		`"required":["k"]},{"properties":{"k":{"const":"b"}},"required":["k"]}]}`,
		`{"type":"object","oneOf":[{"properties":{"k":{"const":"a"},"n":{"maximum":2}},"required":["k"]},` +
			`{"properties":{"k":{"const":"b"}},"required":["k"]}]}`, true, ""},
	{"if and then, wider", `{"if":{"required":["a"]},"then":{"properties":{"b":{"maximum":1}}}}`,
		`{"if":{"required":["a"]},"then":{"properties":{"b":{"maximum":2}}}}`, true, ""},
	{"if and else, narrower", `{"if":{"required":["a"]},"else":{"properties":{"b":{"maximum":2}}}}`,
		`{"if":{"required":["a"]},"else":{"properties":{"b":{"maximum":1}}}}`, false, ""},
	{"contains, more", `{"contains":{"const":1},"minContains":2}`, `{"contains":{"type":"integer"}}`, true, ""},
	{"contains, fewer", `{"contains":{"const":1}}`, `{"contains":{"const":1},"minContains":2}`, false, ""},
	{"property names", `{"propertyNames":{"pattern":"^a"}}`, `{"propertyNames":{"pattern":"^a","maxLength":3}}`, false, ""},
	{"property names of a closed object", `{"properties":{"ab":{},"a":{}},"additionalProperties":false}`,
		`{"propertyNames":{"pattern":"^a","maxLength":3}}`, true, ""},
	{"unevaluatedProperties kept", `{"type":"object","properties":{"a":{"unevaluatedProperties":false}}}`,
		`{"properties":{"a":{"unevaluatedProperties":false}}}`, true, ""},
	{"unevaluatedProperties without what covers all", `{"additionalProperties":{},"unevaluatedProperties":false}`,
		`{"unevaluatedProperties":false}`, false, ""},
	{"unevaluatedItems without what covers all", `{"allOf":[{"items":true}],"unevaluatedItems":false}`,
		`{"allOf":[{}],"unevaluatedItems":false}`, false, ""},
	{"unevaluatedProperties added", `{"properties":{"a":{}}}`, `{"properties":{"a":{}},"unevaluatedProperties":false}`, false, ""},
	{"what holds for objects alone", `{"required":["a"],"dependentSchemas":{"a":{"type":"string"}}}`, `{"type":"string"}`, false, ""},
	{"with a member comes another", `{"type":"object","required":["a"],"dependentRequired":{"a":["b"]}}`, `{"required":["b"]}`, true, ""},
	{"draft 7 to 2020-12", `{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`,
		`{"prefixItems":[{"type":"string"}],"items":false}`, true, ""},
	{"draft 4's exclusive limits", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"number","minimum":1,` +
		`"exclusiveMinimum":true}`, `{"type":"number","exclusiveMinimum":1}`, true, ""},
	{"draft 7's $ref alone counts", `{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a",` +
		`"maximum":3,"definitions":{"a":{}}}`, `{"maximum":3}`, false, ""},
	{"from false", `false`, `{"type":"string"}`, true, ""},
	{"to false", `{"type":"string"}`, `false`, false, ""},
	{"the same pattern with more", `{"patternProperties":{"^a":{"maximum":1}}}`, `{"patternProperties":{"^a":{"maximum":2}}}`, true, ""},
	{"a pattern that others may also match", `{"patternProperties":{"^a":{"maximum":1}},"additionalProperties":{"maximum":2}}`,
		`{"patternProperties":{"b$":{"maximum":1}}}`, false, ""},
	{"a pattern's and the others' values", `{"patternProperties":{"^a":{"maximum":1}},"additionalProperties":{"maximum":2}}`,
		`{"additionalProperties":{"maximum":2}}`, true, ""},
}

func TestBreaks(t *testing.T) {
	for _, tc := range changes {
		reasons := NewBudget(t.Context()).Breaks(compile(t, tc.from), compile(t, tc.to), "version 1", "the new schema")
		if (len(reasons) == 0) != tc.ok {
			t.Errorf("%s: compatible should be %v, reasons: %q", tc.what, tc.ok, reasons)
		}
		if same := NewBudget(t.Context()).Breaks(compile(t, tc.from), compile(t, tc.from), "a", "b"); len(same) > 0 {
			t.Errorf("%s: it is not compatible with itself: %q", tc.what, same)
		}
	}
}

func TestBreaksSaysWhy(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{`{"type":"object","properties":{"a/b":{"type":"string"}}}`, `{"type":"object","properties":{"a/b":{"type":"number"}},"required":["c"]}`,
			`at "/properties/a~1b", the new schema allows no string here, and version 1 does
the new schema requires the property "c", and version 1 does not`},
		{`{"type":["object","null"]}`, `{"type":"object","required":["a"]}`, `the new schema allows no null here, and version 1 does
the new schema requires the property "a", and version 1 does not`},
		{`{"type":["string","number"]}`, `{"type":"string"}`, `the new schema allows no number here, and version 1 does`},
		{`{"enum":["a","b"]}`, `{"enum":["a"]}`, `the new schema refuses "b", which version 1 allows`},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"additionalProperties":false}`,
			`the new schema allows no properties but those that it lists, and version 1 allows others`},
		{`{"properties":{"a":{},"b":{}},"additionalProperties":false}`, `{"properties":{"a":{}},"additionalProperties":false}`,
			`at "/properties/b", the new schema allows no value here, and version 1 does`},
		{`{"pattern":"a"}`, `{"pattern":"b"}`, `the new schema has the pattern "b",` +
			` which version 1 does not have; where it cannot be decided, that counts as incompatible`},
		{`{"items":{"minimum":1}}`, `{"items":{"exclusiveMinimum":1}}`,
			`at "/items", the new schema refuses numbers below 1 or equal to it, and version 1 allows some`},
	} {
		got := strings.Join(NewBudget(t.Context()).Breaks(compile(t, tc.from), compile(t, tc.to), "version 1", "the new schema"), "\n")
		if got != tc.want {
			t.Errorf("%s to %s:\n%s\nwant\n%s", tc.from, tc.to, got, tc.want)
		}
	}
}

// Schemas that are made to take long to compare are incompatible after a bounded number of steps,
// and so is what comes after them out of the same budget.
func TestComparisonsAreBounded(t *testing.T) {
	forms := func(key string, n int, form func(int) string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = form(i)
		}
		return `{"` + key + `":[` + strings.Join(list, ",") + `]}`
	}
	nested := func(last string) string { // each level is compared in several cases
		text := last
		for range 30 {
			text = `{"anyOf":[{"properties":{"a":` + text + `}},{"properties":{"b":` + text[:0] + `{"maximum":1}}}]}`
		}
		return text
	}
	for what, pair := range map[string][2]string{
		"a product of choices": {
			forms("allOf", 20, func(i int) string {
				return fmt.Sprintf(`{"anyOf":[{"properties":{"p%d":{"minimum":1}}},{"properties":{"p%d":{"minimum":2}}},{"maxProperties":%d}]}`,
					i, i, i+1)
			}),
			`{"required":["x"]}`,
		},
		"nested choices": {nested(`{"minimum":1}`), nested(`{"minimum":2}`)},
		"long lists": {
			forms("enum", 9000, func(i int) string { return fmt.Sprintf(`"%d"`, i) }),
			forms("enum", 9000, func(i int) string { return fmt.Sprintf(`"%d"`, i+1) }),
		},
	} {
		budget := &Budget{t.Context(), maxCompared / 4} // for a fast test
		writer, reader := compile(t, pair[0]), compile(t, pair[1])
		began := time.Now()
		reasons := budget.Breaks(writer, reader, "a", "b")
		t.Logf("%s: %v, %d steps left, %q", what, time.Since(began), budget.left, reasons[:1])
		if len(reasons) == 0 {
			t.Errorf("%s: is compatible", what)
		}
		if budget.left > 0 {
			continue
		}
		if again := budget.Breaks(writer, writer, "a", "b"); len(again) != 1 || !strings.Contains(again[0], "too large to be compared") {
			t.Errorf("%s: with nothing left: %q", what, again)
		}
	}
}

// FuzzBreaks: whatever compiles can be compared, and is compatible with itself.
func FuzzBreaks(f *testing.F) {
	for _, c := range changes {
		f.Add(c.from, c.to)
	}
	f.Fuzz(func(t *testing.T, from, to string) {
		writer, err := Compile(from)
		if err != nil {
			return
		}
		if reasons := (&Budget{t.Context(), maxCompared / 64}).Breaks(writer, writer, "a", "b"); len(reasons) > 0 &&
			!strings.Contains(reasons[0], "too large") {
			t.Errorf("%s is not compatible with itself: %q", from, reasons)
		}
		if reader, err := Compile(to); err == nil {
			(&Budget{t.Context(), maxCompared / 64}).Breaks(writer, reader, "a", "b")
		}
	})
}

// A comparison ends soon after its context.
func TestComparisonsAreInterrupted(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"a":{"type":"string"}}}`)
	ctx, cancel := context.WithCancel(t.Context())
	budget := NewBudget(ctx)
	cancel()
	for calls := 0; !budget.Spent(); calls++ {
		if budget.Breaks(s, s, "a", "b"); calls > lookEvery/factSteps {
			t.Fatalf("%d comparisons after the end", calls)
		}
	}
}
