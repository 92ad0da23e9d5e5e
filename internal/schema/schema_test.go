package schema

import (
	"fmt"
	"strings"
	"sync"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	s := compile(t, order)
	for _, tc := range []struct{ payload, pointer, msg string }{
		{`{"id":"abc","lines":[{"sku":"x"}]}`, "-", ""},
		{`{"id":"abc","lines":[{"sku":"x","n":1.0},{"sku":"x","n":1e2}],"total":12345678901234567890}`, "-", ""},
		{`{"id":"abc","lines":[{"sku":"x","n":1e400}],"state":1}`, "-", ""},
		{`[]`, "", "is of type array; allowed is object"},
		{`null`, "", "is of type null; allowed is object"},
		{`{}`, "", `lacks "id", "lines"`},
		{`{"id":"abc"}`, "", `lacks "lines"`},
		{`{"id":"abc","lines":[{"sku":"x"}],"y":1,"x":1}`, "", `has members that are not allowed: "x", "y"`},
		{`{"id":1,"lines":[{"sku":"x"}]}`, "/id", "is of type number; allowed is string"},
		{`{"id":"ab","lines":[{"sku":"x"}]}`, "/id", "has 2 characters; at least 3 are needed"},
		{`{"id":"äbcdef","lines":[{"sku":"x"}]}`, "/id", "has 6 characters; at most 5 are allowed"},
		{`{"id":"ABC","lines":[{"sku":"x"}]}`, "/id", `does not match the pattern "^[a-z]+$"`},
		{`{"id":"abc","lines":[]}`, "/lines", "has 0 elements; at least 1 are needed"},
		{`{"id":"abc","lines":[{"sku":"x"},{}]}`, "/lines/1", `lacks "sku"`},
		{`{"id":"abc","lines":[{"sku":"x","n":1.5}]}`, "/lines/0/n", "is of type number; allowed is integer"},
		{`{"id":"abc","lines":[{"sku":"x"}],"total":0}`, "/total", "must be at least 0.1"},
		{`{"id":"abc","lines":[{"sku":"x"}],"total":12345678901234567891}`, "/total", "must be at most 12345678901234567890"},
		{`{"id":"abc","lines":[{"sku":"x"}],"total":0.25}`, "/total", "must be a multiple of 0.1"},
		{`{"id":"abc","lines":[{"sku":"x"}],"a/b~c":1}`, "/a~1b~0c", "is of type number; allowed is null"},
		{`{"id":"abc","lines":[{"sku":"x"}],"state":"old"}`, "/state", "is none of the values that enum allows"},
		{`{"id":"abc","lines":[{"sku":"x"}],"version":2.1}`, "/version", "is not the value that const asks for"},
		{`{"id":"abc","lines":[{"sku":"x"}],"who":"me"}`, "/who", "fits more than one of the forms of oneOf"},
		// Several: an object before its members, and by name and index.
		{`{"id":1,"lines":2}`, "/id", "is of type number; allowed is string"},
		{`{"lines":2}`, "", `lacks "id"`},
		{`{"id":"abc","lines":[` + strings.Repeat(`{"sku":"x"},`, 2) + `{},` + strings.Repeat(`{"sku":"x"},`, 8) + `{}]}`, "/lines/2", `lacks "sku"`},
		// Of a member given twice the last counts.
		{`{"id":1,"id":"abc","lines":[{"sku":"x"}]}`, "-", ""},
		// Numbers that nothing good comes of comparing.
		{`{"id":"abc","lines":[{"sku":"x","n":1e999999999}]}`, "/lines/0/n", `is the number "1e999999999", which is too large or too small to be checked`},
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
		{`{"not":{"type":"null"}}`, `null`, "has the form that not excludes"},
		{`{"anyOf":[{"type":"null"},{"type":"string"}]}`, `1`, "fits none of the forms of anyOf"},
		{`{"oneOf":[{"type":"null"},{"type":"string"}]}`, `1`, "fits none of the forms of oneOf"},
		{`{"properties":{"a":false}}`, `{"a":1}`, "is not allowed at all"},
		{`{"propertyNames":{"maxLength":1}}`, `{"long":1}`, `has the member "long", whose name is not allowed`},
		{`{"uniqueItems":true}`, `[1,2,1.0]`, "has equal elements, 0 and 2"},
		{`{"uniqueItems":true}`, `[` + strings.Repeat(`[1],`, 30) + `2]`, "has equal elements, 0 and 1"},
		{`{"contains":{"type":"null"}}`, `[1]`, "has no element of the form that contains asks for"},
		{`{"contains":{"type":"null"},"minContains":2}`, `[null]`, "has 1 elements of the form that contains asks for; at least 2 are needed"},
		{`{"contains":{"type":"null"},"maxContains":1}`, `[null,null]`, "has 2 elements of the form that contains asks for; at most 1 are allowed"},
		{`{"minProperties":1}`, `{}`, "has 0 members; at least 1 are needed"},
		{`{"maxProperties":1}`, `{"a":1,"b":1}`, "has 2 members; at most 1 are allowed"},
		{`{"maxItems":1}`, `[1,2]`, "has 2 elements; at most 1 are allowed"},
		{`{"exclusiveMinimum":1e2}`, `100`, "must be more than 100"},
		{`{"exclusiveMaximum":-1.5}`, `-1.5`, "must be less than -1.5"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `has "a" and lacks "b"`},
		{`{"required":["a","b","c","d","e","f","g"]}`, `{}`, `lacks "a", "b", "c", "d", "e" and 2 more`},
		{`{"allOf":[{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"number"}}}`, `""`, "is of type string; allowed is number"},
		{`{"if":{"type":"string"},"then":{"minLength":1}}`, `""`, "has 0 characters; at least 1 are needed"},
		{`{"prefixItems":[true],"items":false}`, `[1,2]`, "is not allowed at all"},
		{`{"unevaluatedProperties":false}`, `{"a":1}`, "is not allowed at all"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}],"additionalItems":false}`, `[1,2]`, "has 1 elements too many"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","maximum":3,"exclusiveMaximum":true}`, `3`, "must be less than 3"},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","dependentRequired":{"a":["b"]}}`, `{"a":1}`, `has "a" and lacks "b"`},
		{`{"$id":"https://example.com/a.json","$ref":"https://example.com/a.json#/$defs/x","$defs":{"x":{"type":"null"}}}`, `1`, "is of type number; allowed is null"},
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
		{`{"properties":{"a":{"minLength":-1}}}`, `is no JSON Schema: at "/properties/a/minLength", must be at least 0`},
		{`{"required":"a"}`, `at "/required", is of type string; allowed is array`},
		{`{"$ref":"https://example.com/s.json"}`, `refers to "https://example.com/s.json": a schema is whole in itself`},
		{`{"$ref":"other.json#/a"}`, `refers to "other.json": a schema is whole in itself`},
		{`{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, `refers to "file:///etc/passwd": a schema is whole`},
		{`{"$schema":"https://example.com/meta"}`, `refers to "https://example.com/meta": a schema is whole`},
		{`{"$ref":"#/$defs/none"}`, `is no JSON Schema: `},
		{`{"$ref":"#nowhere"}`, `is no JSON Schema: `},
		{`{"pattern":"(?!a)"}`, `at "/pattern", is no regex that is understood: `},
		{`{"patternProperties":{"(":true}}`, `at "/patternProperties", has the member "("`},
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
