package schema

import (
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// falseSchema is the schema that no value fits.
var falseSchema = &jsonschema.Schema{Bool: new(false)}

var stringSchema, objectSchema = typeSchema("string"), typeSchema("object")

func typeSchema(name string) *jsonschema.Schema {
	var t jsonschema.Types
	t.Add(name)
	return &jsonschema.Schema{Types: &t}
}

// isTrue reports whether a schema is true, or missing: every value fits it.
func isTrue(s *jsonschema.Schema) bool { return s == nil || s.Bool != nil && *s.Bool }

// subschemaOf is the value of a keyword, a schema or a boolean; nil: everything fits.
func subschemaOf(v any) *jsonschema.Schema {
	switch v := v.(type) {
	case bool:
		if !v {
			return falseSchema
		}
	case *jsonschema.Schema:
		if !isTrue(v) {
			return v
		}
	}
	return nil
}

// items are the schemas of an array's first elements, and the one of the others; nil: everything
// fits.
func items(s *jsonschema.Schema) (first []*jsonschema.Schema, others *jsonschema.Schema) {
	if s.PrefixItems != nil || s.Items2020 != nil {
		return s.PrefixItems, subschemaOf(s.Items2020)
	}
	if first, ok := s.Items.([]*jsonschema.Schema); ok {
		return first, subschemaOf(s.AdditionalItems)
	}
	return nil, subschemaOf(s.Items)
}

// itemSchemas are the schemas of the element at an index.
func itemSchemas(schemas []*jsonschema.Schema, at int) (of []*jsonschema.Schema) {
	for _, s := range schemas {
		first, sub := items(s)
		if at < len(first) {
			sub = first[at]
		}
		if !isTrue(sub) {
			of = append(of, sub)
		}
	}
	return of
}

// arrays goes through the keywords about arrays.
func (c *comparer) arrays(w facts, r *jsonschema.Schema, at string) (bad []string) {
	add := func(reasons []string) { bad = append(bad, reasons...) }
	longest := most(w.fits, maxItems)
	if r.MinItems != nil && least(w.fits, minItems) < *r.MinItems {
		add(c.says(at, "{R} refuses arrays of fewer than %d elements, and {W} allows some", *r.MinItems))
	}
	if r.MaxItems != nil && longest > *r.MaxItems {
		add(c.says(at, "{R} refuses arrays of more than %d elements, and {W} allows some", *r.MaxItems))
	}
	if r.UniqueItems && longest > 1 && !slices.ContainsFunc(w.fits, func(s *jsonschema.Schema) bool { return s.UniqueItems }) {
		add(c.says(at, "{R} refuses arrays with equal elements, and {W} allows some"))
	}
	if r.Contains != nil {
		add(c.contains(w, r, at))
	}
	firsts, _ := items(r)
	n := len(firsts)
	for _, s := range w.fits {
		first, _ := items(s)
		n = max(n, len(first))
	}
	for i := 0; i <= n && i < longest; i++ {
		place := at + "/items/" + strconv.Itoa(i)
		if i == n {
			place = at + "/items"
		}
		for _, sub := range itemSchemas([]*jsonschema.Schema{r}, i) {
			add(c.within(c.factsOf(itemSchemas(w.fits, i)...), sub, place))
		}
	}
	return bad
}

// contains goes through the keyword contains and its least and greatest counts.
func (c *comparer) contains(w facts, r *jsonschema.Schema, at string) (bad []string) {
	fewest := func(s *jsonschema.Schema) int {
		if s.MinContains != nil {
			return *s.MinContains
		}
		return 1
	}
	if n := fewest(r); n > 0 && !slices.ContainsFunc(w.fits, func(s *jsonschema.Schema) bool {
		return s.Contains != nil && fewest(s) >= n && c.within(c.factsOf(s.Contains), r.Contains, at) == nil
	}) {
		bad = append(bad, c.says(at, "{R} has a contains that may refuse what {W} allows"+undecided)...)
	}
	if r.MaxContains != nil && most(w.fits, maxItems) > *r.MaxContains && !slices.ContainsFunc(w.fits, func(s *jsonschema.Schema) bool {
		return s.Contains != nil && s.MaxContains != nil && *s.MaxContains <= *r.MaxContains &&
			c.within(c.factsOf(r.Contains), s.Contains, at) == nil
	}) {
		bad = append(bad, c.says(at, "{R} has a maxContains that may refuse what {W} allows"+undecided)...)
	}
	return bad
}

func (c *comparer) noArray(w facts) bool {
	fewest := least(w.fits, minItems)
	if fewest > most(w.fits, maxItems) {
		return true
	}
	for i := range min(fewest, maxCases) {
		if schemas := itemSchemas(w.fits, i); schemas != nil && c.empty(c.factsOf(schemas...)) {
			return true
		}
	}
	return false
}

// memberSchemas are the schemas of the member of a name.
func memberSchemas(schemas []*jsonschema.Schema, name string) (of []*jsonschema.Schema) {
	for _, s := range schemas {
		sub, known := s.Properties[name]
		if known && !isTrue(sub) {
			of = append(of, sub)
		}
		for _, p := range patterns(s) {
			if p.MatchString(name) {
				known = true
				if sub := s.PatternProperties[p]; !isTrue(sub) {
					of = append(of, sub)
				}
			}
		}
		if rest := subschemaOf(s.AdditionalProperties); !known && rest != nil {
			of = append(of, rest)
		}
	}
	return of
}

// patterns are those of a subschema's patternProperties, in order.
func patterns(s *jsonschema.Schema) []jsonschema.Regexp {
	if len(s.PatternProperties) == 0 {
		return nil
	}
	byText := make(map[string]jsonschema.Regexp, len(s.PatternProperties))
	for p := range s.PatternProperties {
		byText[p.String()] = p
	}
	list := make([]jsonschema.Regexp, 0, len(byText))
	for _, text := range sortedKeys(byText) {
		list = append(list, byText[text])
	}
	return list
}

// objects goes through the keywords about objects.
func (c *comparer) objects(w facts, r *jsonschema.Schema, at string) (bad []string) {
	add := func(reasons []string) { bad = append(bad, reasons...) }
	for _, name := range r.Required {
		if !w.requires(name) {
			add(c.says(at, "{R} requires the property %s, and {W} does not", shown(name)))
		}
	}
	fewest, known := least(w.fits, minProperties), c.names(w)
	if r.MinProperties != nil && max(fewest, known.required) < *r.MinProperties {
		add(c.says(at, "{R} refuses objects of fewer than %d properties, and {W} allows some", *r.MinProperties))
	}
	if r.MaxProperties != nil && most(w.fits, maxProperties) > *r.MaxProperties && (!known.closed || len(known.names) > *r.MaxProperties) {
		add(c.says(at, "{R} refuses objects of more than %d properties, and {W} allows some", *r.MaxProperties))
	}
	if !isTrue(r.PropertyNames) {
		add(c.propertyNames(w, r, known, at))
	}
	add(c.dependencies(w, r, at))
	add(c.members(w, r, known, at))
	return bad
}

// knownNames are what is known of an object's members by their names.
type knownNames struct {
	names    map[string]bool // that are listed
	required int             // how many have to be there
	closed   bool            // there are no others
}

func (c *comparer) names(w facts) knownNames {
	k := knownNames{names: map[string]bool{}}
	required := map[string]bool{}
	for _, s := range w.fits {
		c.spend(nameSteps * (len(s.Properties) + len(s.Required)))
		for name := range s.Properties {
			k.names[name] = true
		}
		for _, name := range s.Required {
			required[name] = true
		}
		rest := subschemaOf(s.AdditionalProperties)
		k.closed = k.closed || rest != nil && rest.Bool != nil && len(s.PatternProperties) == 0
	}
	k.required = len(required)
	return k
}

func (c *comparer) propertyNames(w facts, r *jsonschema.Schema, known knownNames, at string) []string {
	names := []*jsonschema.Schema{stringSchema}
	for _, s := range w.fits {
		if !isTrue(s.PropertyNames) {
			names = append(names, s.PropertyNames)
		}
	}
	bad := c.within(c.factsOf(names...), r.PropertyNames, at+"/propertyNames")
	if bad == nil || !known.closed {
		return bad
	}
	for _, name := range sortedKeys(known.names) {
		if !c.accepts(r.PropertyNames, name) && !c.noMember(w, name) {
			return c.says(at, "{R} refuses the property name %s, which {W} allows", shown(name))
		}
	}
	return nil
}

// noMember reports whether an object of these facts cannot have a member of a name.
func (c *comparer) noMember(w facts, name string) bool {
	schemas := memberSchemas(w.fits, name)
	return schemas != nil && c.empty(c.factsOf(schemas...))
}

// dependencies goes through the keywords about what an object with some member must fulfil.
func (c *comparer) dependencies(w facts, r *jsonschema.Schema, at string) (bad []string) {
	having := func(name string) facts { return c.with(w, objectSchema, &jsonschema.Schema{Required: []string{name}}) }
	required := dependents(r)
	for _, name := range sortedKeys(required) {
		if there := having(name); !there.requires(required[name]...) && !c.noMember(w, name) {
			bad = append(bad, c.says(at, "with %s, {R} requires properties that {W} does not", shown(name))...)
		}
	}
	schemas := map[string]*jsonschema.Schema{}
	for name, sub := range r.DependentSchemas {
		schemas[name] = sub
	}
	for name, dependency := range r.Dependencies {
		if sub := asSchema(dependency); sub != nil {
			schemas[name] = sub
		}
	}
	for _, name := range sortedKeys(schemas) {
		if !c.noMember(w, name) {
			bad = append(bad, c.within(having(name), schemas[name], at+"/dependentSchemas/"+pointerEscapes.Replace(name))...)
		}
	}
	return bad
}

// members goes through properties, patternProperties and additionalProperties: first for each name
// that either side lists, then for all others.
func (c *comparer) members(w facts, r *jsonschema.Schema, known knownNames, at string) (bad []string) {
	rest := subschemaOf(r.AdditionalProperties)
	if len(r.Properties) == 0 && len(r.PatternProperties) == 0 && rest == nil {
		return nil
	}
	for name := range r.Properties {
		known.names[name] = true
	}
	for _, name := range sortedKeys(known.names) {
		if !c.spend(factSteps * (1 + len(w.fits)) * (1 + instructionsOf(w.fits)) * (1 + len(name)/16)) {
			return append(bad, c.says(at, "the comparison takes too many steps")...)
		}
		for _, sub := range memberSchemas([]*jsonschema.Schema{r}, name) {
			bad = append(bad, c.within(c.factsOf(memberSchemas(w.fits, name)...), sub, at+"/properties/"+pointerEscapes.Replace(name))...)
		}
	}
	own := map[string]bool{} // the reader's patterns
	for _, p := range patterns(r) {
		own[p.String()] = true
		for _, schemas := range otherMemberSchemas(w, p, nil) {
			bad = append(bad, c.within(c.factsOf(schemas...), r.PatternProperties[p],
				at+"/patternProperties/"+pointerEscapes.Replace(p.String()))...)
		}
	}
	if rest == nil {
		return bad
	}
	for _, schemas := range otherMemberSchemas(w, nil, own) {
		if rest == falseSchema && !c.empty(c.factsOf(schemas...)) {
			return append(bad, c.says(at, "{R} allows no properties but those that it lists, and {W} allows others")...)
		}
		bad = append(bad, c.within(c.factsOf(schemas...), rest, at+"/additionalProperties")...)
	}
	return bad
}

// instructionsOf is the number of instructions, in thousands, of all patterns for names.
func instructionsOf(schemas []*jsonschema.Schema) (n int) {
	for _, s := range schemas {
		for p := range s.PatternProperties {
			n += instructions(p)
		}
	}
	return n / 1000
}

// otherMemberSchemas are the cases of what applies to a member whose name neither side lists: one
// that matches the pattern, if there is one, and none of the patterns in unmatched.
func otherMemberSchemas(w facts, pattern jsonschema.Regexp, unmatched map[string]bool) [][]*jsonschema.Schema {
	cases := [][]*jsonschema.Schema{nil}
	for _, s := range w.fits {
		var ways []*jsonschema.Schema // any of them, or more than one
		certain := false
		for _, p := range patterns(s) {
			if text := p.String(); pattern != nil && text == pattern.String() {
				ways, certain = []*jsonschema.Schema{s.PatternProperties[p]}, true
				break
			} else if !unmatched[text] {
				ways = append(ways, s.PatternProperties[p])
			}
		}
		if !certain {
			ways = append(ways, subschemaOf(s.AdditionalProperties))
		}
		if slices.ContainsFunc(ways, isTrue) || len(ways)*len(cases) > maxCases {
			continue // nothing is known by this schema
		}
		var next [][]*jsonschema.Schema
		for _, one := range cases {
			for _, way := range ways {
				next = append(next, append(slices.Clone(one), way))
			}
		}
		cases = next
	}
	return cases
}

func (c *comparer) noObject(w facts) bool {
	known := c.names(w)
	if max(least(w.fits, minProperties), known.required) > most(w.fits, maxProperties) {
		return true
	}
	for _, s := range w.fits {
		for _, name := range s.Required {
			if c.noMember(w, name) {
				return true
			}
		}
	}
	return false
}
