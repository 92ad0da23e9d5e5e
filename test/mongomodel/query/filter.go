package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Filter selects documents.
type Filter struct{ root node }

// All selects all documents.
var All = &Filter{root: and{}}

// A node is one condition on a document.
type node interface {
	match(doc bson.Raw) bool
	// bounds returns a superset of the values that the field at path has in documents that match,
	// arrays aside.
	bounds(path string) Bounds
}

// ParseFilter returns the filter that a document says. An empty or nil one selects all.
func ParseFilter(doc bson.Raw) (*Filter, error) {
	if err := Validate(doc); err != nil {
		return nil, err
	}
	root, err := parseConditions(doc)
	if err != nil {
		return nil, err
	}
	return &Filter{root: root}, nil
}

// Match tells whether the filter selects the document.
func (f *Filter) Match(doc bson.Raw) bool { return f.root.match(doc) }

// Bounds returns a superset of the values that the field at path has in documents that the filter
// selects and that have no array on the path.
func (f *Filter) Bounds(path string) Bounds { return f.root.bounds(path) }

// Implies tells whether all documents that f selects are selected by other, too, as far as it can
// tell: each of other's conditions is one of f's, or holds for all values within f's bounds. A
// partial index serves the finds that imply it.
func (f *Filter) Implies(other *Filter) bool {
	mine, ok := f.root.(and)
	theirs, alsoOK := other.root.(and)
	if !ok || !alsoOK {
		return false
	}
	return !slices.ContainsFunc(theirs, func(want node) bool { return !mine.implies(want) })
}

func (a and) implies(want node) bool {
	leaf, ok := want.(*field)
	if !ok {
		return false
	}
	for _, have := range a {
		if h, ok := have.(*field); ok && h.name == leaf.name && h.source.Type == leaf.source.Type && same(h.source, leaf.source) {
			return true
		}
	}
	mine := a.bounds(leaf.name)
	if _, isExists := leaf.test.(exists); isExists {
		return !mine.Contains(nullValue()) && !mine.Contains(bson.RawValue{})
	}
	return leaf.exact() && mine.within(leaf.bounds(leaf.name))
}

// UpsertSeed returns the document that an upsert starts from: the fields that the filter requires
// to be equal to a value.
func (f *Filter) UpsertSeed() (bson.Raw, error) {
	var doc bson.Raw = newBuilder(0).doc()
	seen := map[string]bool{}
	for _, e := range equalities(f.root) {
		if seen[e.key] {
			return nil, Errorf(54, "cannot infer query fields to set, path '%s' is matched twice", e.key)
		}
		seen[e.key] = true
		changed, err := modify(doc, splitPath(e.key), true, func(bson.RawValue) (bson.RawValue, error) { return e.value, nil })
		if err != nil {
			return nil, err
		}
		doc = changed
	}
	return doc, nil
}

// equalities returns the fields that are equal to one value in each document that matches.
func equalities(n node) (all []element) {
	switch n := n.(type) {
	case and:
		for _, child := range n {
			all = append(all, equalities(child)...)
		}
	case or:
		if len(n) == 1 {
			return equalities(n[0])
		}
	case *field:
		if c, ok := n.test.(comparison); ok && c.op == "$eq" {
			return []element{{n.name, c.operand}}
		}
	}
	return all
}

type (
	and []node
	or  []node
	not struct{ node }
)

func (a and) match(doc bson.Raw) bool {
	return !slices.ContainsFunc(a, func(n node) bool { return !n.match(doc) })
}

func (a and) bounds(path string) Bounds {
	b := everything
	for _, n := range a {
		b = b.intersect(n.bounds(path))
	}
	return b
}

func (o or) match(doc bson.Raw) bool {
	return slices.ContainsFunc(o, func(n node) bool { return n.match(doc) })
}

func (o or) bounds(path string) Bounds {
	var b Bounds
	for _, n := range o {
		b = b.union(n.bounds(path))
	}
	return b
}

func (n not) match(doc bson.Raw) bool { return !n.node.match(doc) }

func (not) bounds(string) Bounds { return everything }

// A field is one condition on the values at a path.
type field struct {
	name   string
	path   []string
	test   predicate
	source bson.RawValue // the operator with its operand, to recognize the same condition
}

func (f *field) match(doc bson.Raw) bool { return visit(doc, f.path, f.test.holds) }

func (f *field) bounds(path string) Bounds {
	if path != f.name {
		return everything
	}
	return f.test.bounds()
}

// An absent is the condition that a path leads to no value.
type absent struct{ *field }

func (a absent) match(doc bson.Raw) bool { return !a.field.match(doc) }

func (a absent) bounds(path string) Bounds {
	if path != a.name {
		return everything
	}
	return nullBounds
}

// exact tells whether the condition holds for all values within its bounds.
func (f *field) exact() bool {
	switch test := f.test.(type) {
	case comparison:
		return test.op == "$eq" || classBounds(test.operand.Type).Low.Type != bson.TypeMinKey // bounds of no one class hold the missing value too
	case in:
		return true
	}
	return false
}

func parseConditions(doc bson.Raw) (and, error) {
	all := and{}
	for k, v := range Fields(doc) {
		key := string(k)
		if !strings.HasPrefix(key, "$") {
			conditions, err := parseField(key, v)
			if err != nil {
				return nil, err
			}
			all = append(all, conditions...)
			continue
		}
		n, err := parseLogical(key, v)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func parseLogical(key string, v bson.RawValue) (node, error) {
	if key != "$and" && key != "$or" && key != "$nor" {
		return nil, Errorf(BadValue, "unknown top level operator: %s is not known to the model", key)
	}
	if !isArray(v) {
		return nil, Errorf(BadValue, "%s must be an array", key)
	}
	var branches []node
	for _, x := range Fields(v.Value) {
		if !isDocument(x) {
			return nil, Errorf(BadValue, "$or/$and/$nor entries need to be full objects")
		}
		n, err := parseConditions(x.Value)
		if err != nil {
			return nil, err
		}
		branches = append(branches, n)
	}
	switch {
	case len(branches) == 0:
		return nil, Errorf(BadValue, "%s must be a nonempty array", key)
	case key == "$and":
		return and(branches), nil
	case key == "$or":
		return or(branches), nil
	}
	return not{or(branches)}, nil
}

// parseField returns the conditions on one field: equality with a value, or operators.
func parseField(name string, v bson.RawValue) ([]node, error) {
	if !isOperators(v) {
		n, err := newField(name, "$eq", v)
		return []node{n}, err
	}
	var all []node
	for k, operand := range Fields(v.Value) {
		n, err := newField(name, string(k), operand)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// isOperators tells operators such as {$gt: 1} from a document that is a value to compare with. A
// reference to another document is a value.
func isOperators(v bson.RawValue) bool {
	if !isDocument(v) {
		return false
	}
	for k := range Fields(v.Value) {
		key := string(k)
		return strings.HasPrefix(key, "$") && key != "$ref" && key != "$id" && key != "$db"
	}
	return false
}

func newField(name, op string, operand bson.RawValue) (node, error) {
	f := &field{name: name, path: splitPath(name), source: documentOf([]element{{op, operand}})}
	switch op {
	case "$ne":
		op = "$eq"
	case "$nin":
		op = "$in"
	case "$not":
		return parseNot(name, operand)
	case "$exists":
		f.test = exists{}
		if !truth(operand) {
			return absent{f}, nil
		}
		return f, nil
	default:
		test, err := newPredicate(op, operand)
		f.test = test
		return f, err
	}
	test, err := newPredicate(op, operand)
	f.test = test
	return not{f}, err
}

func parseNot(name string, operand bson.RawValue) (node, error) {
	if !isOperators(operand) {
		return nil, Errorf(BadValue, "$not needs a document: anything else is not known to the model")
	}
	conditions, err := parseField(name, operand)
	if err != nil {
		return nil, err
	}
	return not{and(conditions)}, nil
}
