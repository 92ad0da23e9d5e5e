package schema

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// digest is the digest of a schema's assertions, independent of its place and of references to it.
type digest [sha256.Size]byte

// same reports whether two schemas assert the same; false where it cannot tell.
func (c *comparer) same(a, b *jsonschema.Schema) bool {
	return a == b || c.digest(a) == c.digest(b)
}

// sameSubschemas reports whether two lists are the same, in any order.
func (c *comparer) sameSubschemas(a, b []*jsonschema.Schema) bool {
	if len(a) != len(b) {
		return false
	}
	sorted := func(schemas []*jsonschema.Schema) []string {
		list := make([]string, len(schemas))
		for i, sub := range schemas {
			d := c.digest(sub)
			list[i] = string(d[:])
		}
		slices.Sort(list)
		return list
	}
	return slices.Equal(sorted(a), sorted(b))
}

// saysTypesOnly reports whether a schema is a type keyword and nothing else.
func (c *comparer) saysTypesOnly(s *jsonschema.Schema) bool {
	only, known := c.typeOnly[s]
	if !known {
		bare := jsonschema.Schema{Types: s.Types}
		only = s.Types != nil && c.digest(s) == c.sum(&bare)
		c.typeOnly[s] = only
	}
	return only
}

func (c *comparer) digest(s *jsonschema.Schema) digest {
	if isTrue(s) {
		s = emptySchema
	}
	d, known := c.digests[s]
	if !known {
		d = c.sum(s)
		c.digests[s] = d
	}
	return d
}

// sum is a schema's digest: of all its keywords except annotations. One that is a reference and
// nothing else has the digest of what it refers to.
func (c *comparer) sum(s *jsonschema.Schema) (d digest) {
	c.spend(factSteps)
	w := summer{c, sha256.New()}
	w.say("bool", s.Bool)
	if s.Types != nil {
		w.say("type", int(typesOf(s)))
	}
	if s.Const != nil {
		w.say("const", *s.Const)
	}
	if s.Enum != nil {
		w.say("enum", s.Enum.Values)
	}
	for i, number := range []fmt.Stringer{s.Minimum, s.Maximum, s.ExclusiveMinimum, s.ExclusiveMaximum, s.MultipleOf} {
		w.say("number", i, number)
	}
	for i, n := range []*int{
		s.MinLength, s.MaxLength, s.MinItems, s.MaxItems, s.MinProperties, s.MaxProperties, s.MinContains, s.MaxContains,
	} {
		w.say("count", i, n)
	}
	if s.Pattern != nil {
		w.say("pattern", s.Pattern.String())
	}
	w.say("unique", s.UniqueItems)
	w.say("required", slices.Sorted(slices.Values(s.Required)))
	first, others := items(s)
	for i, schemas := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, first} {
		w.say("subschemas", i, len(schemas))
		for _, sub := range schemas {
			w.subschema(sub)
		}
	}
	for i, sub := range []*jsonschema.Schema{
		s.Not, s.If, s.Then, s.Else, others, s.Contains, s.PropertyNames, subschemaOf(s.AdditionalProperties),
	} {
		w.say("subschema", i)
		w.subschema(sub)
	}
	// A subschema that accepts everything still counts for an unevaluatedProperties or
	// unevaluatedItems around it.
	w.say("covers", s.AdditionalProperties != nil, s.Items != nil, s.AdditionalItems != nil, s.Items2020 != nil)
	if s.Contains != nil {
		w.say("draft", s.DraftVersion)
	}
	for i, byName := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, name := range sortedKeys(byName) {
			w.say("member", i, name)
			w.subschema(byName[name])
		}
	}
	for _, p := range patterns(s) {
		w.say("patternProperty", p.String())
		w.subschema(s.PatternProperties[p])
	}
	for _, name := range sortedKeys(s.DependentRequired) {
		w.say("dependentRequired", name, s.DependentRequired[name])
	}
	for _, name := range sortedKeys(s.Dependencies) {
		names, _ := s.Dependencies[name].([]string)
		w.say("dependency", name, names)
		w.subschema(asSchema(s.Dependencies[name]))
	}
	if s.UnevaluatedItems != nil || s.UnevaluatedProperties != nil { // the draft decides which
		w.say("unevaluated", s.DraftVersion)
		w.subschema(s.UnevaluatedItems)
		w.subschema(s.UnevaluatedProperties)
	}
	w.Sum(d[:0])
	if s.Ref == nil {
		return d
	}
	if d == c.nothing() {
		return c.digest(s.Ref)
	}
	w.say("ref")
	w.subschema(s.Ref)
	w.Sum(d[:0])
	return d
}

// nothing is the digest of a schema that asserts nothing.
func (c *comparer) nothing() digest { return c.digest(emptySchema) }

var emptySchema = &jsonschema.Schema{}

// summer writes the assertions of a schema so that two texts are equal only if the assertions are.
type summer struct {
	c *comparer
	hash.Hash
}

func (w summer) say(what string, values ...any) {
	text, err := json.Marshal(append([]any{what}, values...))
	if err != nil {
		panic(err) // all of it was JSON, or is a number or a name
	}
	w.Write(append(text, '\n'))
}

func (w summer) subschema(s *jsonschema.Schema) {
	var d digest // zero: there is no subschema, unlike one that every value fits
	if s != nil {
		d = w.c.digest(s)
	}
	w.Write(d[:])
}
