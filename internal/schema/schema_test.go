package schema

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

const order = `{"type":"object","required":["id","lines"],"additionalProperties":false,
 "properties":{"id":{"type":"string","minLength":3,"maxLength":5,"pattern":"^[a-z]+$"},
 "total":{"type":"number","minimum":0.1,"maximum":12345678901234567890,"multipleOf":0.1},
 "lines":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/line"}},
 "a/b~c":{"type":"null"},"state":{"enum":["new","paid",1.0]},"version":{"const":2},
 "who":{"oneOf":[{"type":"string"},{"maxLength":2}]}},
 "$defs":{"line":{"type":"object","required":["sku"],"properties":{"sku":{"type":"string"},"n":{"type":"integer"}}}}}`

func compile(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Compile(text)
	require.NoError(t, err)
	return s
}

func TestCheck(t *testing.T) {
	s := compile(t, order)
	for _, tc := range []struct{ payload, pointer, msg string }{
		{`{"id":"abc","lines":[{"sku":"x"}]}`, "-", ""},
		{`{"id":"abc","lines":[{"sku":"x","n":1.0},{"sku":"x","n":1e2}],"total":12345678901234567890}`, "-", ""},
		{`{"id":"abc","lines":[{"sku":"x","n":1e400}],"state":1}`, "-", ""},
		{`[]`, "", "is refused: got array, want object"},
		{`null`, "", "is refused: got null, want object"},
		{`{}`, "", "is refused: missing properties 'id', 'lines'"},
		{`{"id":"abc"}`, "", "is refused: missing property 'lines'"},
		{`{"id":"abc","lines":[{"sku":"x"}],"y":1,"x":1}`, "", "is refused: additional properties 'x', 'y' not allowed"},
		{`{"id":1,"lines":[{"sku":"x"}]}`, "/id", "is refused: got number, want string"},
		{`{"id":"ab","lines":[{"sku":"x"}]}`, "/id", "is refused: minLength: got 2, want 3"},
		{`{"id":"äbcdef","lines":[{"sku":"x"}]}`, "/id", "is refused: maxLength: got 6, want 5"},
		{`{"id":"ABC","lines":[{"sku":"x"}]}`, "/id", `is refused: no match of pattern "^[a-z]+$"`},
		{`{"id":"abc","lines":[]}`, "/lines", "is refused: minItems: got 0, want 1"},
		{`{"id":"abc","lines":[{"sku":"x"},{}]}`, "/lines/1", "is refused: missing property 'sku'"},
		{`{"id":"abc","lines":[{"sku":"x","n":1.5}]}`, "/lines/0/n", "is refused: got number, want integer"},
		{`{"id":"abc","lines":[{"sku":"x"}],"total":0}`, "/total", "is refused: minimum: got 0, want 0.1"},
		{`{"id":"abc","lines":[{"sku":"x"}],"total":12345678901234567891}`, "/total",
			"is refused: maximum: got 1.2345678901234567×10¹⁹, want 1.2345678901234567×10¹⁹"},
		{`{"id":"abc","lines":[{"sku":"x"}],"total":0.25}`, "/total", "is refused: multipleOf: got 0.25, want 0.1"},
		{`{"id":"abc","lines":[{"sku":"x"}],"a/b~c":1}`, "/a~1b~0c", "is refused: got number, want null"},
		{`{"id":"abc","lines":[{"sku":"x"}],"state":"old"}`, "/state", "is refused: value must be one of those of enum"},
		{`{"id":"abc","lines":[{"sku":"x"}],"version":2.1}`, "/version", "is refused: value must be 2"},
		{`{"id":"abc","lines":[{"sku":"x"}],"who":"me"}`, "/who", "is refused: 'oneOf' failed, subschemas 0, 1 matched"},
		// Several: an object before its members, and by name and index.
		{`{"id":1,"lines":2}`, "/id", "is refused: got number, want string"},
		{`{"lines":2}`, "", "is refused: missing property 'id'"},
		{`{"id":"abc","lines":[` + strings.Repeat(`{"sku":"x"},`, 2) + `{},` + strings.Repeat(`{"sku":"x"},`, 8) +
			`{}]}`, "/lines/2", "is refused: missing property 'sku'"},
		// Of a member given twice the last counts.
		{`{"id":1,"id":"abc","lines":[{"sku":"x"}]}`, "-", ""},
		// Numbers that nothing good comes of comparing.
		{`{"id":"abc","lines":[{"sku":"x","n":1e999999999}]}`, "/lines/0/n",
			`is the number "1e999999999", which is too large or too small to be checked`},
		{`{"c":1e9999,"a":{"b":[1,-1E-9999]},"b":1e9999}`, "/a/b/1", `is the number "-1E-9999", which is too large or too small to be checked`},
		{`{"id":"abc","lines":[{"sku":"x","n":` + strings.Repeat("7", 2000) + `}]}`, "/lines/0/n",
			`is the number "` + strings.Repeat("7", 100) + `…", which is too large or too small to be checked`},
	} {
		v := s.Check([]byte(tc.payload))
		switch {
		case v == nil && tc.pointer != "-", v != nil && (v.Pointer != tc.pointer || v.Msg != tc.msg):
			t.Errorf("%s:\n got %+v\nwant %q %q", tc.payload, v, tc.pointer, tc.msg)
		}
	}
}

func TestKeywords(t *testing.T) {
	for _, tc := range []struct{ schema, payload, want string }{
		{`{"not":{"type":"null"}}`, `null`, "is refused: 'not' failed"},
		{`{"anyOf":[{"type":"null"},{"type":"string"}]}`, `1`, "is refused: 'anyOf' failed"},
		{`{"oneOf":[{"type":"null"},{"type":"string"}]}`, `1`, "is refused: 'oneOf' failed, none matched"},
		{`{"properties":{"a":false}}`, `{"a":1}`, "is refused: false schema"},
		{`{"propertyNames":{"maxLength":1}}`, `{"long":1}`, "is refused: invalid propertyName 'long'"},
		{`{"uniqueItems":true}`, `[1,2,1.0]`, "is refused: items at 0 and 2 are equal"},
		{`{"uniqueItems":true}`, `[` + strings.Repeat(`[1],`, 30) + `2]`, "is refused: items at 0 and 1 are equal"},
		{`{"contains":{"type":"null"}}`, `[1]`, "is refused: no items match contains schema"},
		{`{"contains":{"type":"null"},"minContains":2}`, `[null]`,
			"is refused: min 2 items required to match contains schema, but matched 1 items at 0"},
		{`{"contains":{"type":"null"},"maxContains":1}`, `[null,null]`,
			"is refused: max 1 items required to match contains schema, but matched 2 items at 0 1"},
		{`{"minProperties":1}`, `{}`, "is refused: minProperties: got 0, want 1"},
		{`{"maxProperties":1}`, `{"a":1,"b":1}`, "is refused: maxProperties: got 2, want 1"},
		{`{"maxItems":1}`, `[1,2]`, "is refused: maxItems: got 2, want 1"},
		{`{"exclusiveMinimum":1e2}`, `100`, "is refused: exclusiveMinimum: got 100, want 100"},
		{`{"exclusiveMaximum":-1.5}`, `-1.5`, "is refused: exclusiveMaximum: got -1.5, want -1.5"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "is refused: properties 'b' required, if 'a' exists"},
		{`{"required":["a","b","c","d","e","f","g"]}`, `{}`, "is refused: missing properties 'a', 'b', 'c', 'd', 'e', 'f', 'g'"},
		{`{"allOf":[{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"number"}}}`, `""`, "is refused: got string, want number"},
		{`{"if":{"type":"string"},"then":{"minLength":1}}`, `""`, "is refused: minLength: got 0, want 1"},
		{`{"prefixItems":[true],"items":false}`, `[1,2]`, "is refused: false schema"},
		{`{"unevaluatedProperties":false}`, `{"a":1}`, "is refused: false schema"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}],"additionalItems":false}`, `[1,2]`,
			"is refused: last 1 additionalItem(s) not allowed"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","maximum":3,"exclusiveMaximum":true}`, `3`,
			"is refused: exclusiveMaximum: got 3, want 3"},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","dependentRequired":{"a":["b"]}}`, `{"a":1}`,
			"is refused: properties 'b' required, if 'a' exists"},
		{`{"$id":"https://example.com/a.json","$ref":"https://example.com/a.json#/$defs/x","$defs":{"x":{"type":"null"}}}`, `1`,
			"is refused: got number, want null"},
		// Annotations assert nothing.
		{`{"format":"date-time"}`, `"today"`, ""},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","format":"uuid","contentEncoding":"base64"}`, `"*"`, ""},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","format":"ipv4"}`, `"x"`, ""},
		{`{"unknown":{"type":1}}`, `1`, ""},
		{`{}`, `{"a":"\ud800"}`, ""},
	} {
		got := ""
		if v := compile(t, tc.schema).Check([]byte(tc.payload)); v != nil {
			got = v.Msg
		}
		if got != tc.want {
			t.Errorf("%s of %s:\n got %q\nwant %q", tc.schema, tc.payload, got, tc.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, tc := range []struct{ schema, want string }{
		{`{"type":"strnig"}`, `is no JSON Schema: at "/type"`},
		{`{"properties":{"a":{"minLength":-1}}}`, `is no JSON Schema: at "/properties/a/minLength", is refused: minimum: got -1, want 0`},
		{`{"required":"a"}`, `at "/required", is refused: got string, want array`},
		{`{"$ref":"https://example.com/s.json"}`, `refers to "https://example.com/s.json": a schema must be self-contained`},
		{`{"$ref":"other.json#/a"}`, `refers to "other.json": a schema must be self-contained`},
		{`{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, `refers to "file:///etc/passwd": a schema must be self-contained`},
		{`{"$schema":"https://example.com/meta"}`, `refers to "https://example.com/meta": a schema must be self-contained`},
		{`{"$ref":"#/$defs/none"}`, `is no JSON Schema: `},
		{`{"$ref":"#nowhere"}`, `is no JSON Schema: `},
		{`{"pattern":"(?!a)"}`, `at "/pattern", is refused: not a valid regex: `},
		{`{"patternProperties":{"(":true}}`, `at "/patternProperties", is refused: invalid propertyName '('`},
		{`{"pattern":"` + strings.Repeat("a", 1025) + `"}`, `it has 1025 bytes; at most 1024 are allowed`},
		{`{"pattern":"(abcdefghijklmnopqrst){1000}"}`, `it repeats too much`},
		{`{"maximum":1e9999}`, `at "/maximum" is the number "1e9999"`},
		{`{"description":"` + strings.Repeat("x", MaxBytes) + `"}`, `at most 262144 are allowed`},
		{`{"enum":[` + strings.Repeat("true,", 5000) + `1]}`, `holds 5001 objects and booleans; at most 5000 are allowed`},
		{`{"a":`, "is not JSON"},
		{`{} {}`, "is not JSON"},
	} {
		_, err := Compile(tc.schema)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.80s:\n got %v\nwant %s", tc.schema, err, tc.want)
		}
		if err != nil && (strings.Contains(err.Error(), "sluice:") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%.80s: the sentence is not one for people: %v", tc.schema, err)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := NewCache(3)
	text := func(i int) string { return fmt.Sprintf(`{"maximum":%d}`, i) }
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for i := range 30 {
				s, err := c.Get(text(i))
				if err != nil || s.Check([]byte("1000")) == nil {
					t.Error(i, err)
				}
			}
		})
	}
	users.Wait()
	if n := len(c.recent) + len(c.older); n > 6 {
		t.Errorf("%d are kept", n)
	}
	first, _ := c.Get(text(1))
	if again, _ := c.Get(text(1)); again != first {
		t.Error("compiled again")
	}
	if _, err := c.Get(`{"type":1}`); err == nil {
		t.Error("no schema, no error")
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(order, `{"id":"abc","lines":[]}`)
	f.Add(`{"pattern":"^(a|b)*$","minimum":1e-7,"uniqueItems":true}`, `[1,1e3,"a",{"b":null}]`)
	f.Add(`{"$ref":"#"}`, `1`)
	f.Add(`{"$dynamicRef":"#a","$dynamicAnchor":"a","unevaluatedItems":false}`, `[[]]`)
	f.Fuzz(func(t *testing.T, text, payload string) {
		s, err := Compile(text)
		if err != nil {
			return
		}
		if v := s.Check([]byte(payload)); v != nil && v.Msg == "" {
			t.Errorf("%s of %s: refused without a word", text, payload)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(order); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	c := NewCache(10)
	payload := []byte(`{"id":"abc","lines":[{"sku":"x","n":1},{"sku":"y","n":2}],"total":17.5,"state":"new"}`)
	b.ReportAllocs()
	for b.Loop() {
		s, err := c.Get(order)
		if err != nil || s.Check(payload) != nil {
			b.Fatal(err)
		}
	}
}
