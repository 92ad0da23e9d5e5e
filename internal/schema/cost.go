package schema

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema that calls itself in several branches is evaluated more often by a
// factor with each level of a payload. So what a check would take is counted
// first.
const (
	// maxEvaluations is how many times the forms of a schema may be evaluated
	// on the values of one payload; each takes about a microsecond. Counting
	// them takes no more steps than that, either.
	maxEvaluations = 300_000
	// plainForms is how many forms a schema may have, with each reference
	// written out, and be checked without counting: each value is then
	// evaluated at most that often, usually about once.
	plainForms = MaxSubschemas
)

const tooCostly = "takes too many steps to be checked: the schema calls itself, or its parts, in too many branches for this payload"

// cost knows of a schema what is needed to count its evaluations.
type cost struct {
	root *jsonschema.Schema
	// plain schemas need no counting.
	plain bool
	// anchors and entries are where dynamic references may lead to, which
	// depends on where they are reached from: by $dynamicAnchor, and all.
	anchors map[string][]*jsonschema.Schema
	entries []*jsonschema.Schema
}

// costOf looks over a schema and what it reaches; more is what dynamic
// references may lead to besides.
func costOf(root *jsonschema.Schema, more []*jsonschema.Schema) *cost {
	c := &cost{root: root, anchors: make(map[string][]*jsonschema.Schema)}
	sizes := make(map[*jsonschema.Schema]int) // 0 while it is being measured
	dynamic := false
	var measure func(*jsonschema.Schema) int
	measure = func(s *jsonschema.Schema) int {
		if size, seen := sizes[s]; seen {
			if size == 0 { // it reaches itself
				return plainForms + 1
			}
			return size
		}
		sizes[s] = 0
		if s.DynamicAnchor != "" {
			c.anchors[s.DynamicAnchor] = append(c.anchors[s.DynamicAnchor], s)
		}
		dynamic = dynamic || s.DynamicRef != nil || s.RecursiveRef != nil
		size := 1
		for _, form := range formsOf(s) {
			size = min(size+measure(form), plainForms+1)
		}
		sizes[s] = size
		return size
	}
	c.plain = measure(root) <= plainForms && !dynamic
	if !c.plain {
		for _, s := range more {
			measure(s)
		}
		c.entries = entriesOf(root, slices.Collect(maps.Keys(sizes)))
	}
	return c
}

// entriesOf are those of a number of schemas that are reached otherwise than
// from what is around them.
func entriesOf(root *jsonschema.Schema, all []*jsonschema.Schema) []*jsonschema.Schema {
	entries := map[*jsonschema.Schema]bool{root: true}
	for _, s := range all {
		entries[s] = entries[s] || s.ID != "" || s.DynamicAnchor != ""
		for _, target := range []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.PropertyNames} {
			entries[target] = true
		}
		if s.DynamicRef != nil {
			entries[s.DynamicRef.Ref] = true
		}
	}
	return slices.DeleteFunc(all, func(s *jsonschema.Schema) bool { return !entries[s] })
}

// formsOf are the schemas that a schema names.
func formsOf(s *jsonschema.Schema) []*jsonschema.Schema {
	forms := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames,
		s.UnevaluatedProperties, s.UnevaluatedItems, s.Contains, s.Items2020}
	if s.DynamicRef != nil {
		forms = append(forms, s.DynamicRef.Ref)
	}
	forms = slices.Concat(forms, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems)
	for _, form := range s.Properties {
		forms = append(forms, form)
	}
	for _, form := range s.PatternProperties {
		forms = append(forms, form)
	}
	for _, form := range s.DependentSchemas {
		forms = append(forms, form)
	}
	for _, dependency := range s.Dependencies {
		forms = append(forms, schemaIn(dependency))
	}
	if items, ok := s.Items.([]*jsonschema.Schema); ok {
		forms = append(forms, items...)
	}
	forms = append(forms, schemaIn(s.Items), schemaIn(s.AdditionalItems), schemaIn(s.AdditionalProperties))
	return slices.DeleteFunc(forms, func(s *jsonschema.Schema) bool { return s == nil })
}

// schemaIn is nil for what is no schema, as a list of names or a boolean.
func schemaIn(v any) *jsonschema.Schema {
	s, _ := v.(*jsonschema.Schema)
	return s
}

// dynamicAnchors finds the places in a schema's text that $dynamicRef can lead
// to, and that nothing else may.
func dynamicAnchors(c *jsonschema.Compiler, doc any, at []string) (found []*jsonschema.Schema) {
	switch doc := doc.(type) {
	case map[string]any:
		if _, is := doc["$dynamicAnchor"].(string); is {
			// What is only data there, as in an enum, need not be a schema.
			if s, err := c.Compile(base + "#" + fragmentOf(at)); err == nil {
				found = append(found, s)
			}
		}
		for name, member := range doc {
			found = append(found, dynamicAnchors(c, member, append(at, name))...)
		}
	case []any:
		for i, item := range doc {
			found = append(found, dynamicAnchors(c, item, append(at, strconv.Itoa(i)))...)
		}
	}
	return found
}

// fragmentOf writes a location as a fragment of a URL.
func fragmentOf(tokens []string) string {
	var out strings.Builder
	for _, b := range []byte(pointerOf(tokens)) {
		if b == '/' || b == '~' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z' {
			out.WriteByte(b)
			continue
		}
		const hex = "0123456789ABCDEF"
		out.Write([]byte{'%', hex[b>>4], hex[b&15]})
	}
	return out.String()
}

// exceeds tells whether to check a value takes too long.
func (c *cost) exceeds(v any) bool {
	if c.plain {
		return false
	}
	return newCounter(c).count(c.root, v) > maxEvaluations
}

// counter counts the evaluations that a value takes, or more: it does not ask
// which forms fit, nor which need not be looked at once one did not.
type counter struct {
	*cost
	steps int
	known map[evaluation]int
	// open are the evaluations around the one that is counted, by how deep they
	// are. A check ends at one that is open already. lowest is the outermost
	// that was met again: what was counted inside of it holds only there.
	open   map[evaluation]int
	lowest int
}

// evaluation is of one schema on one value.
type evaluation struct {
	schema *jsonschema.Schema
	kind   jsonschema.Types
	// value tells objects and arrays from each other; others take as long as
	// all of their kind.
	value uintptr
}

func newCounter(c *cost) *counter {
	return &counter{cost: c, known: make(map[evaluation]int), open: make(map[evaluation]int), lowest: maxEvaluations}
}

// count returns maxEvaluations+1 for all that is more.
func (c *counter) count(s *jsonschema.Schema, v any) int {
	if s == nil {
		return 0
	}
	if c.steps++; c.steps > maxEvaluations {
		return maxEvaluations + 1
	}
	kind := kindOf(v)
	if s.Bool != nil || s.Types != nil && *s.Types != 0 && *s.Types&kind == 0 {
		return 1 // refused at once, as most of a union's forms are
	}
	e := evaluation{schema: s, kind: kind}
	switch v.(type) {
	case map[string]any, []any:
		e.value = reflect.ValueOf(v).Pointer()
	}
	if n, known := c.known[e]; known {
		return n
	}
	if depth, open := c.open[e]; open {
		c.lowest = min(c.lowest, depth)
		return 1
	}
	depth, outer := len(c.open), c.lowest
	c.open[e], c.lowest = depth, maxEvaluations
	n := c.countForms(s, v)
	delete(c.open, e)
	if c.lowest >= depth {
		c.known[e], c.lowest = n, outer
	}
	c.lowest = min(c.lowest, outer)
	return n
}

// sum adds up evaluations.
type sum struct {
	*counter
	n int
}

func (n *sum) add(s *jsonschema.Schema, v any) {
	if n.n <= maxEvaluations {
		n.n = min(n.n+n.count(s, v), maxEvaluations+1)
	}
}

// addOne adds the costliest of several, of which one is evaluated.
func (n *sum) addOne(v any, of ...*jsonschema.Schema) {
	most := 0
	for _, s := range of {
		most = max(most, n.count(s, v))
	}
	n.n = min(n.n+most, maxEvaluations+1)
}

func (c *counter) countForms(s *jsonschema.Schema, v any) int {
	n := &sum{c, 1}
	n.add(s.Ref, v)
	if s.Ref != nil && s.DraftVersion < 2019 {
		return n.n
	}
	switch v := v.(type) {
	case map[string]any:
		n.addMembers(s, v)
	case []any:
		n.addItems(s, v)
	}
	if r := s.RecursiveRef; r != nil && r.RecursiveAnchor {
		n.addOne(v, c.entries...)
	} else {
		n.add(r, v)
	}
	if r := s.DynamicRef; r != nil {
		n.addOne(v, append([]*jsonschema.Schema{r.Ref}, c.anchors[r.Anchor]...)...)
	}
	n.add(s.Not, v)
	for _, forms := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, form := range forms {
			n.add(form, v)
		}
	}
	n.add(s.If, v)
	n.addOne(v, s.Then, s.Else)
	return min(n.n, maxEvaluations+1)
}

func (n *sum) addMembers(s *jsonschema.Schema, object map[string]any) {
	for name, dependency := range s.Dependencies {
		if _, has := object[name]; has {
			n.add(schemaIn(dependency), object)
		}
	}
	for name, form := range s.DependentSchemas {
		if _, has := object[name]; has {
			n.add(form, object)
		}
	}
	for name, member := range object {
		form, evaluated := s.Properties[name]
		n.add(form, member)
		for pattern, form := range s.PatternProperties {
			// A match takes as long as an evaluation.
			if n.steps, n.n = n.steps+1, n.n+1; n.steps > maxEvaluations {
				n.n = maxEvaluations + 1
				return
			}
			if pattern.MatchString(name) {
				evaluated = true
				n.add(form, member)
			}
		}
		switch {
		case evaluated:
		case s.AdditionalProperties != nil:
			n.add(schemaIn(s.AdditionalProperties), member)
		default:
			n.add(s.UnevaluatedProperties, member)
		}
		n.add(s.PropertyNames, name)
	}
}

func (n *sum) addItems(s *jsonschema.Schema, array []any) {
	first, rest := s.PrefixItems, s.Items2020
	if s.DraftVersion < 2020 {
		if all := schemaIn(s.Items); all != nil {
			rest = all
		} else {
			first, _ = s.Items.([]*jsonschema.Schema)
			rest = schemaIn(s.AdditionalItems)
		}
	}
	if rest == nil {
		rest = s.UnevaluatedItems
	}
	for i, item := range array {
		if i < len(first) {
			n.add(first[i], item)
		} else {
			n.add(rest, item)
		}
		n.add(s.Contains, item)
	}
}

var kinds = func() (k struct{ null, boolean, number, text, array, object jsonschema.Types }) {
	k.null.Add("null")
	k.boolean.Add("boolean")
	k.number.Add("number")
	k.number.Add("integer")
	k.text.Add("string")
	k.array.Add("array")
	k.object.Add("object")
	return k
}()

func kindOf(v any) jsonschema.Types {
	switch v.(type) {
	case nil:
		return kinds.null
	case bool:
		return kinds.boolean
	case string:
		return kinds.text
	case []any:
		return kinds.array
	case map[string]any:
		return kinds.object
	}
	return kinds.number // as decode has them
}
