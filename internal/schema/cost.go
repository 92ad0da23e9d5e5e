package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A check takes at most as many steps as its payload has values, times the steps of the schema on
// one value, and as many as the payload has bytes, times the steps of the patterns on one byte.
// Both factors of a schema are computed when it is compiled, and bounded. A step is about 15 ns:
// the comparison of one text of an enum, or of one character with one instruction of a pattern.
const (
	// maxSteps is for one check: about half a second of a payload that is made to take long. One of
	// 1 MiB may have 100,000 values with five subschemas each.
	maxSteps = 32_000_000
	// maxValueSteps and maxTextSteps are what a schema may take on one value, and on one byte of a
	// text.
	maxValueSteps = 64_000
	maxTextSteps  = 1000
	// schemaSteps are the steps of one schema on one value, whose refusal is noted.
	schemaSteps = 64
	// nameSteps are the steps of looking for one member.
	nameSteps = 8
	// uniqueSteps are the steps of comparing an element of up to 20 with the others.
	uniqueSteps = 10 * schemaSteps
	// textShare is how many instructions of a pattern make a step: most patterns look at a
	// character by one of them.
	textShare = 2
)

const tooCostly = "takes too many steps to be checked: it has too many values, or too long texts, for what the schema compares each with"

// steps are the steps on one value, or on one byte of a text.
type steps struct{ value, text int }

func (s steps) plus(t steps) steps { return steps{s.value + t.value, s.text + t.text} }
func (s steps) most(t steps) steps { return steps{max(s.value, t.value), max(s.text, t.text)} }

// cost is what a schema takes on a value itself, and on any one inside of it.
type cost struct{ here, below steps }

func (c cost) most() steps { return c.here.most(c.below) }

// meter works out the costs of schemas, each once; nil: it is being worked out.
type meter map[*jsonschema.Schema]*cost

// costOf also refuses schemas that lead back to themselves.
func costOf(s *jsonschema.Schema) (steps, error) {
	c, err := meter{}.of(s)
	return c.most(), err
}

func (m meter) of(s *jsonschema.Schema) (c cost, err error) {
	if c, seen := m[s]; seen {
		if c == nil {
			return cost{}, fmt.Errorf("at %q refers to itself: recursive schemas are not supported", place(s))
		}
		return *c, nil
	}
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		return cost{}, fmt.Errorf("at %q has a $dynamicRef or a $recursiveRef, which are for schemas that refer to "+
			"themselves: those are not supported", place(s))
	}
	m[s] = nil
	c.here = ownSteps(s)
	if s.UniqueItems {
		c.below.value = uniqueSteps
	}
	for p := range s.PatternProperties {
		c.below.text += instructions(p)
	}
	each := func(schemas []*jsonschema.Schema, add func(cost)) {
		for _, sub := range schemas {
			if sub != nil && err == nil {
				var of cost
				of, err = m.of(sub)
				add(of)
			}
		}
	}
	var most steps
	each(inPlace(s), func(of cost) { c.here, c.below = c.here.plus(of.here), c.below.plus(of.below) })
	each(onOneChild(s), func(of cost) { most = most.most(of.most()) })
	each(onAnyChild(s), func(of cost) { c.below = c.below.plus(of.most()) })
	if err != nil {
		return cost{}, err
	}
	c.below = c.below.plus(most)
	if most := c.most(); most.value > maxValueSteps || most.text > maxTextSteps {
		return cost{}, fmt.Errorf("at %q needs too many comparisons for one value: it takes %d steps a value and %d a "+
			"character, at most %d and %d are allowed; "+
			"have fewer values in enum, subschemas in allOf, anyOf and oneOf, or names in required, or simpler patterns",
			place(s), most.value, most.text, maxValueSteps, maxTextSteps)
	}
	m[s] = &c
	return c, nil
}

// place is where a schema is in its text.
func place(s *jsonschema.Schema) string { return strings.TrimPrefix(s.Location, base+"#") }

// ownSteps are the steps of a schema on one value, without its subschemas.
func ownSteps(s *jsonschema.Schema) steps {
	n := schemaSteps + nameSteps*(len(s.Required)+len(s.Dependencies)+len(s.DependentRequired)+len(s.DependentSchemas))
	for _, required := range s.DependentRequired {
		n += nameSteps * len(required)
	}
	for _, dependency := range s.Dependencies {
		names, _ := dependency.([]string)
		n += nameSteps * len(names)
	}
	if s.Const != nil {
		n += comparison(*s.Const)
	}
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			n += comparison(v)
		}
	}
	return steps{n, instructions(s.Pattern)}
}

// comparison is how many steps it takes to compare something with a value of a schema.
func comparison(v any) (n int) {
	walk(v, func(v any) {
		switch v := v.(type) {
		case json.Number:
			n += 2 * schemaSteps * numberSize(v)
		case map[string]any:
			n += 1 + nameSteps*len(v)
		default:
			n++
		}
	})
	return n
}

func instructions(p jsonschema.Regexp) int {
	if p, ok := p.(pattern); ok {
		return p.instructions
	}
	return 0
}

// inPlace are the subschemas that a schema applies to the same value. In this and the next two, nil
// is no subschema.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	schemas := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	schemas = slices.AppendSeq(schemas, maps.Values(s.DependentSchemas))
	for _, dependency := range s.Dependencies {
		schemas = append(schemas, asSchema(dependency))
	}
	return schemas
}

// onOneChild are the subschemas that a schema applies to one member or element each.
func onOneChild(s *jsonschema.Schema) []*jsonschema.Schema {
	items, _ := s.Items.([]*jsonschema.Schema)
	return slices.AppendSeq(slices.Concat(s.PrefixItems, items), maps.Values(s.Properties))
}

// onAnyChild are the subschemas that it may apply to any member or element.
func onAnyChild(s *jsonschema.Schema) []*jsonschema.Schema {
	return slices.AppendSeq([]*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.UnevaluatedItems, s.Contains, s.Items2020,
		asSchema(s.Items), asSchema(s.AdditionalItems), asSchema(s.AdditionalProperties)}, maps.Values(s.PatternProperties))
}

// asSchema is nil for a value that is no schema, such as a list of names or a boolean.
func asSchema(v any) *jsonschema.Schema {
	s, _ := v.(*jsonschema.Schema)
	return s
}

// sizeOf counts the values inside of a value. Numbers that take long to compare count as several.
func sizeOf(v any) (n int) {
	walk(v, func(v any) {
		if number, ok := v.(json.Number); ok {
			n += numberSize(number)
		} else {
			n++
		}
	})
	return n
}

func numberSize(n json.Number) int {
	digits, exponent := extent(string(n))
	return 1 + (digits+max(exponent, -exponent))/50
}

// walk visits a value and all values inside of it.
func walk(v any, visit func(any)) {
	visit(v)
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			walk(member, visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}
