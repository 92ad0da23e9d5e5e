package query

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Update changes a document or replaces it.
type Update struct {
	changes     []fieldChange
	replacement bson.Raw // nil: not a replacement
	pipeline    []assignment
}

// An assignment is what a $set of a pipeline does to one field.
type assignment struct {
	path  []string
	value expression
}

// A fieldChange is what one operator does to one field.
type fieldChange struct {
	operator string
	name     string
	path     []string
	create   bool // make the field where it is not there
	// apply makes the new value of the old one; id is the document's, for errors.
	apply func(old, id bson.RawValue) (bson.RawValue, error)
}

// ParseUpdate returns the update that u says: a document of operators, a replacement, or a pipeline
// of one $set.
func ParseUpdate(u bson.RawValue) (*Update, error) {
	if isArray(u) {
		return parsePipelineUpdate(values(u.Value))
	}
	if !isDocument(u) {
		return nil, Errorf(FailedToParse, "an update by %s is not known to the model: it must be an object", TypeName(u))
	}
	if err := Validate(u.Value); err != nil {
		return nil, err
	}
	all := elements(u.Value)
	if len(all) == 0 || !strings.HasPrefix(all[0].key, "$") {
		return parseReplacement(u.Value, all)
	}
	update := &Update{}
	for _, e := range all {
		changes, err := parseOperator(e.key, e.value)
		if err != nil {
			return nil, err
		}
		update.changes = append(update.changes, changes...)
	}
	slices.SortStableFunc(update.changes, func(a, b fieldChange) int { return comparePaths(a.path, b.path) })
	return update, update.conflicts()
}

func parsePipelineUpdate(stages []bson.RawValue) (*Update, error) {
	if len(stages) != 1 || !isDocument(stages[0]) || !isDocument(Lookup(stages[0].Value, "$set")) {
		return nil, Errorf(FailedToParse, "an update by another pipeline than one $set is not known to the model")
	}
	u := &Update{}
	for k, v := range Fields(Lookup(stages[0].Value, "$set").Value) {
		path, err := parseUpdatePath(string(k))
		if err != nil {
			return nil, err
		}
		value, err := parseExpression(v)
		if err != nil {
			return nil, err
		}
		u.pipeline = append(u.pipeline, assignment{path, value})
	}
	return u, nil
}

func parseReplacement(doc bson.Raw, all []element) (*Update, error) {
	for _, e := range all {
		if strings.HasPrefix(e.key, "$") {
			return nil, Errorf(DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' in '%s' is not allowed in the "+
				"context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.", e.key, e.key)
		}
	}
	if doc == nil {
		doc = newBuilder(0).doc()
	}
	return &Update{replacement: doc}, nil
}

func parseOperator(operator string, operand bson.RawValue) ([]fieldChange, error) {
	parse, ok := updateOperators[operator]
	if !ok {
		return nil, Errorf(FailedToParse, "Unknown modifier: %s. It is not known to the model", operator)
	}
	if !isDocument(operand) {
		return nil, Errorf(FailedToParse, "Modifiers operate on fields but we found type %s instead. For example: {$mod: {<field>: "+
			"...}} not {%s: %s}", TypeName(operand), operator, operand)
	}
	var all []fieldChange
	for k, v := range Fields(operand.Value) {
		path, err := parseUpdatePath(string(k))
		if err != nil {
			return nil, err
		}
		c := fieldChange{operator: operator, name: string(k), path: path}
		if err := parse(&c, v); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func parseUpdatePath(name string) ([]string, error) {
	path := splitPath(name)
	for _, component := range path {
		switch {
		case component == "":
			return nil, Errorf(EmptyFieldName, "The update path '%s' contains an empty field name, which is not allowed.", name)
		case component == "$" || strings.HasPrefix(component, "$["):
			return nil, Errorf(BadValue, "the positional %s in '%s' is not known to the model", component, name)
		case component[0] == '$':
			return nil, Errorf(DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' in '%s' is not allowed for storage.",
				component, name)
		}
	}
	return path, nil
}

// comparePaths is the order in which an update changes fields: by name, positions by number.
func comparePaths(a, b []string) int {
	return slices.CompareFunc(a, b, func(x, y string) int {
		n, isX := position(x)
		m, isY := position(y)
		if isX && isY {
			return cmp.Compare(n, m)
		}
		return strings.Compare(x, y)
	})
}

// conflicts refuses two changes of the same field, or of a field and something in it.
func (u *Update) conflicts() error {
	var paths [][]string
	for _, c := range u.changes {
		for _, other := range paths {
			n := min(len(c.path), len(other))
			if slices.Equal(c.path[:n], other[:n]) {
				return Errorf(ConflictingUpdateOperators, "Updating the path '%s' would create a conflict at '%s'",
					c.name, strings.Join(c.path[:n], "."))
			}
		}
		paths = append(paths, c.path)
	}
	return nil
}

// Replacement tells whether the update replaces the whole document, which no update of many may.
func (u *Update) Replacement() bool { return u.replacement != nil }

// Apply returns the document after the update. The one given is not changed, and is returned where
// nothing changes. inserting says that an upsert inserts it, for $setOnInsert.
func (u *Update) Apply(doc bson.Raw, inserting bool) (bson.Raw, error) {
	old := Lookup(doc, "_id")
	if u.replacement != nil {
		return u.replace(doc, old)
	}
	result := doc
	for _, a := range u.pipeline { // all of them see the document as it was
		v := a.value(doc)
		changed, err := modify(result, a.path, true, func(bson.RawValue) (bson.RawValue, error) { return v, nil })
		if err != nil {
			return nil, err
		}
		result = changed
	}
	for _, c := range u.changes {
		if c.operator == "$setOnInsert" && !inserting {
			continue
		}
		changed, err := modify(result, c.path, c.create, func(v bson.RawValue) (bson.RawValue, error) { return c.apply(v, old) })
		if err != nil {
			return nil, err
		}
		result = changed
	}
	if id := Lookup(result, "_id"); !missing(old) && (missing(id) || !equal(id, old)) {
		return nil, Errorf(ImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	}
	return result, nil
}

// replace puts the _id first, wherever the replacement has it.
func (u *Update) replace(doc bson.Raw, id bson.RawValue) (bson.Raw, error) {
	own := Lookup(u.replacement, "_id")
	switch {
	case missing(id):
		id = own
	case !missing(own) && !equal(id, own):
		return nil, Errorf(ImmutableField, "After applying the update, the (immutable) field '_id' was found to have been altered "+
			"to _id: %s", own)
	}
	if after := WithID(u.replacement, id); !bytes.Equal(doc, after) {
		return after, nil
	}
	return doc, nil
}

// WithID returns a document with another _id, as the first field.
func WithID(doc bson.Raw, id bson.RawValue) bson.Raw {
	b := newBuilder(len(doc) + len(id.Value))
	b.add("_id", id)
	for k, v := range Fields(doc) {
		if string(k) != "_id" {
			b.add(string(k), v)
		}
	}
	return b.doc()
}
