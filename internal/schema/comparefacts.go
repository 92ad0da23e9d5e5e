package schema

import (
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// facts are what is known of a value.
type facts struct {
	fits    []*jsonschema.Schema // the schemas that it fits, with all that follow from them
	fitsNot []*jsonschema.Schema
	// divided are the choices by whose cases these facts were divided already.
	divided []choice
}

// choice is the anyOf or the oneOf of a schema.
type choice struct {
	of    *jsonschema.Schema
	oneOf bool
}

func (c *comparer) factsOf(schemas ...*jsonschema.Schema) facts { return c.with(facts{}, schemas...) }

// with adds schemas that the value fits.
func (c *comparer) with(w facts, schemas ...*jsonschema.Schema) facts {
	w.fits, w.fitsNot, w.divided = slices.Clone(w.fits), slices.Clone(w.fitsNot), slices.Clone(w.divided)
	for _, sub := range schemas {
		c.learn(&w, sub)
	}
	c.conclude(&w)
	return w
}

// without adds a schema that the value does not fit.
func (c *comparer) without(w facts, sub *jsonschema.Schema) facts {
	w = c.with(w)
	w.fitsNot = append(w.fitsNot, sub)
	c.conclude(&w)
	return w
}

// learn adds a schema, and the subschemas that it applies to the value itself.
func (c *comparer) learn(w *facts, sub *jsonschema.Schema) {
	if sub == nil || slices.Contains(w.fits, sub) || !c.spend(factSteps) {
		return
	}
	w.fits = append(w.fits, sub)
	if sub.Not != nil {
		w.fitsNot = append(w.fitsNot, sub.Not)
	}
	c.learn(w, sub.Ref)
	for _, part := range sub.AllOf {
		c.learn(w, part)
	}
}

// conclude adds what follows from the keyword if, and from the dependencies of required members.
func (c *comparer) conclude(w *facts) {
	for before := -1; before < len(w.fits) && c.left > 0; {
		before = len(w.fits)
		for _, s := range w.fits[:before] {
			if s.If != nil && slices.ContainsFunc(w.fits, func(f *jsonschema.Schema) bool { return c.same(f, s.If) }) {
				c.learn(w, s.Then)
			}
			if s.If != nil && slices.ContainsFunc(w.fitsNot, func(f *jsonschema.Schema) bool { return c.same(f, s.If) }) {
				c.learn(w, s.Else)
			}
			if c.types(*w) != typeObject { // the rest holds only if the value is an object
				continue
			}
			for _, name := range sortedKeys(s.DependentSchemas) {
				if w.requires(name) {
					c.learn(w, s.DependentSchemas[name])
				}
			}
			for _, name := range sortedKeys(s.Dependencies) {
				if w.requires(name) {
					c.learn(w, asSchema(s.Dependencies[name]))
				}
			}
			for name, names := range dependents(s) {
				if w.requires(name) && !w.requires(names...) {
					c.learn(w, &jsonschema.Schema{Required: names})
				}
			}
		}
	}
}

// dependents are the names that have to be there with a name.
func dependents(s *jsonschema.Schema) map[string][]string {
	if len(s.Dependencies) == 0 {
		return s.DependentRequired
	}
	all := make(map[string][]string)
	for name, names := range s.DependentRequired {
		all[name] = names
	}
	for name, dependency := range s.Dependencies {
		if names, ok := dependency.([]string); ok {
			all[name] = append(slices.Clone(all[name]), names...)
		}
	}
	return all
}

// requires reports whether an object that fits has all of some members.
func (w *facts) requires(names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(w.fits, func(s *jsonschema.Schema) bool { return slices.Contains(s.Required, name) }) {
			return false
		}
	}
	return true
}

// alternatives divides facts into cases by the next anyOf or oneOf; nil: there is none.
func (c *comparer) alternatives(w facts) []facts {
	for _, s := range w.fits {
		for _, choice := range []choice{{s, false}, {s, true}} {
			schemas := s.AnyOf
			if choice.oneOf {
				schemas = s.OneOf
			}
			if schemas == nil || slices.Contains(w.divided, choice) {
				continue
			}
			cases := make([]facts, len(schemas))
			for i, sub := range schemas {
				one := c.with(w)
				one.divided = append(one.divided, choice)
				if choice.oneOf {
					one.fitsNot = append(slices.Concat(one.fitsNot, schemas[:i]), schemas[i+1:]...)
				}
				cases[i] = c.with(one, sub)
			}
			return cases
		}
	}
	return nil
}

// empty reports whether there is no value of these facts; false where it cannot tell.
func (c *comparer) empty(w facts) bool {
	if !c.spend(factSteps * (1 + len(w.fits))) {
		return false
	}
	for _, s := range w.fits {
		if s.Bool != nil && !*s.Bool {
			return true
		}
	}
	if values, finite := c.values(w); finite {
		return len(values) == 0
	}
	switch types := c.types(w); {
	case types&^anyNumber == 0:
		whole := types&typeFraction == 0
		low, high := lowest(w.fits, whole, false), lowest(w.fits, whole, true)
		return types == 0 || low != nil && high != nil && low.past(high.negated())
	case types == typeString:
		return least(w.fits, minLength) > most(w.fits, maxLength)
	case types == typeArray:
		return c.noArray(w)
	case types == typeObject:
		return c.noObject(w)
	}
	return false
}

// values are all values of these facts, where they can be counted.
func (c *comparer) values(w facts) (all []any, finite bool) {
	var candidates []any
	for _, s := range w.fits {
		if s.Const != nil {
			candidates, finite = []any{*s.Const}, true
			break
		}
		if s.Enum != nil && (!finite || len(s.Enum.Values) < len(candidates)) {
			candidates, finite = s.Enum.Values, true
		}
	}
	if !finite {
		types := c.types(w)
		if types == 0 || types&^(typeNull|typeBoolean) != 0 {
			return nil, false
		}
		candidates = []any{nil, true, false}
	}
	for _, v := range candidates {
		if !slices.ContainsFunc(w.fits, func(s *jsonschema.Schema) bool { return !c.accepts(s, v) }) {
			all = append(all, v)
		}
	}
	return all, c.left > 0 // out of steps, nothing is accepted
}

// kinds is a set of types. Whole numbers and other numbers are two types in it.
type kinds uint8

const (
	typeNull kinds = 1 << iota
	typeBoolean
	typeInteger
	typeFraction
	typeString
	typeArray
	typeObject

	anyNumber = typeInteger | typeFraction
	anyKind   = typeNull | typeBoolean | anyNumber | typeString | typeArray | typeObject
)

var kindNames = []struct {
	name  string
	kinds kinds
}{
	{"null", typeNull}, {"boolean", typeBoolean}, {"number", anyNumber}, {"integer", typeInteger}, {"fraction", typeFraction},
	{"string", typeString}, {"array", typeArray}, {"object", typeObject},
}

func (k kinds) String() string {
	var names []string
	for _, n := range kindNames {
		if k&n.kinds == n.kinds {
			names, k = append(names, n.name), k&^n.kinds
		}
	}
	return strings.Join(names, " or ")
}

// typesOf are the types that the schema's own type keyword allows.
func typesOf(s *jsonschema.Schema) kinds {
	if s.Types == nil {
		return anyKind
	}
	var k kinds
	for _, name := range s.Types.ToStrings() {
		for _, n := range kindNames {
			if n.name == name {
				k |= n.kinds
			}
		}
	}
	return k
}

// types are the types that values of these facts may have.
func (c *comparer) types(w facts) kinds {
	k := anyKind
	for _, s := range w.fits {
		k &= typesOf(s)
	}
	for _, s := range w.fitsNot {
		if c.saysTypesOnly(s) {
			k &^= typesOf(s)
		}
	}
	return k
}

// each divides facts into a case for each of these types; nil: there is only one.
func (k kinds) each(w facts) (cases []facts) {
	if k&(k-1) == 0 || k == anyNumber {
		return nil
	}
	for _, n := range kindNames {
		if k&n.kinds != n.kinds {
			continue
		}
		k &^= n.kinds
		name := n.name
		if n.kinds == typeFraction {
			name = "number" // the whole ones are excluded already
		}
		one := w
		one.fits = append(slices.Clone(w.fits), typeSchema(name))
		cases = append(cases, one)
	}
	return cases
}

// limit is a lower limit of numbers, and whether it is itself outside. An upper limit is a lower
// one of the negated numbers.
type limit struct {
	at      *big.Rat
	outside bool
}

func (l limit) String() string {
	text := l.at.RatString()
	if l.outside {
		return text + " or equal to it"
	}
	return text
}

// negated is the limit in the other direction.
func (l limit) negated() limit { return limit{new(big.Rat).Neg(l.at), l.outside} }

// above reports whether l leaves out more than m.
func (l limit) above(m limit) bool {
	order := l.at.Cmp(m.at)
	return order > 0 || order == 0 && l.outside && !m.outside
}

// past reports whether nothing is between a lower limit and an upper one.
func (l limit) past(high limit) bool {
	order := l.at.Cmp(high.at)
	return order > 0 || order == 0 && (l.outside || high.outside)
}

// lowest is the lower limit that all of some schemas set together, for whole numbers a whole
// number; nil: there is none. With upper it is their upper limit, negated.
func lowest(schemas []*jsonschema.Schema, whole, upper bool) (strictest *limit) {
	for _, s := range schemas {
		limits := []limit{{s.Minimum, false}, {s.ExclusiveMinimum, true}}
		if upper {
			limits = []limit{{s.Maximum, false}, {s.ExclusiveMaximum, true}}
		}
		for _, l := range limits {
			if l.at == nil {
				continue
			}
			if upper {
				l = l.negated()
			}
			if whole {
				l = l.wholeUp()
			}
			if strictest == nil || l.above(*strictest) {
				strictest = &l
			}
		}
	}
	return strictest
}

// wholeUp is a lower limit as the lowest whole number that it lets in.
func (l limit) wholeUp() limit {
	n := new(big.Int)
	if l.at.IsInt() {
		n.Set(l.at.Num())
		if l.outside {
			n.Add(n, big.NewInt(1))
		}
	} else {
		n.Div(l.at.Num(), l.at.Denom()) // Euclidean: rounds down, as the denominator is positive
		n.Add(n, big.NewInt(1))
	}
	return limit{new(big.Rat).SetInt(n), false}
}

var ratOne = big.NewRat(1, 1)

// isMultiple reports whether the multiples of one number, nil for none, are multiples of another
// one.
func isMultiple(of, asked *big.Rat) bool {
	return of != nil && new(big.Rat).Quo(of, asked).IsInt()
}
