package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An expression computes a value from a document. The zero value is that of a field which is not
// there.
type expression func(doc bson.Raw) bson.RawValue

// parseExpression reads a constant, a path such as "$a.b", or an $add or a $max of these.
func parseExpression(v bson.RawValue) (expression, error) {
	if isDocument(v) {
		if all := elements(v.Value); len(all) == 1 && isArray(all[0].value) {
			return parseOperands(all[0].key, values(all[0].value.Value))
		}
	}
	if isDocument(v) || isArray(v) {
		return nil, Errorf(168, "the expression %s is not known to the model", v)
	}
	name, _ := v.StringValueOK()
	path, isPath := strings.CutPrefix(name, "$")
	if !isPath {
		return func(bson.Raw) bson.RawValue { return v }, nil
	}
	components := splitPath(path)
	for _, c := range components {
		if c == "" || c[0] == '$' {
			return nil, Errorf(16410, "FieldPath '%s' is not known to the model", name)
		}
	}
	return func(doc bson.Raw) bson.RawValue {
		return follow(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}, components)
	}, nil
}

// parseOperands reads an operator over expressions: $max leaves out values that are not there, $add
// gives null where one is not.
func parseOperands(operator string, operands []bson.RawValue) (expression, error) {
	var all []expression
	for _, v := range operands {
		e, err := parseExpression(v)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	switch operator {
	case "$max":
		return func(doc bson.Raw) (most bson.RawValue) {
			for _, e := range all {
				if v := e(doc); missing(most) || !missing(v) && Compare(v, most) > 0 {
					most = v
				}
			}
			return orNull(most)
		}, nil
	case "$add":
		return func(doc bson.Raw) bson.RawValue {
			sum := intValue(0)
			for _, e := range all {
				v := e(doc)
				if !isNumber(v) {
					return nullValue()
				}
				sum, _ = add(sum, v)
			}
			return sum
		}, nil
	}
	return nil, Errorf(168, "Unrecognized expression '%s': it is not known to the model", operator)
}

// follow returns the value at a path in an expression: an array on the way gives an array of the
// values in its elements.
func follow(v bson.RawValue, path []string) bson.RawValue {
	switch {
	case len(path) == 0:
		return v
	case isDocument(v):
		return follow(Lookup(v.Value, path[0]), path[1:])
	case isArray(v):
		var all []bson.RawValue
		for _, x := range Fields(v.Value) {
			if found := follow(x, path); !missing(found) {
				all = append(all, found)
			}
		}
		return arrayOf(all)
	}
	return bson.RawValue{}
}

// A sumField is a field of $group's documents: the sum of an expression's values; values that are
// no numbers do not count.
type sumField struct {
	name       string
	expression expression
}

func parseGroup(operand bson.RawValue) (stage, error) {
	var id expression
	var sums []sumField
	for k, v := range Fields(operand.Value) {
		var err error
		if string(k) == "_id" {
			id, err = parseExpression(v)
		} else {
			var f sumField
			f, err = parseSum(string(k), v)
			sums = append(sums, f)
		}
		if err != nil {
			return nil, err
		}
	}
	if id == nil {
		return nil, Errorf(15955, "a group specification must include an _id")
	}
	return func(docs []bson.Raw) ([]bson.Raw, error) { return group(docs, id, sums) }, nil
}

func parseSum(name string, v bson.RawValue) (sumField, error) {
	var all []element
	if isDocument(v) {
		all = elements(v.Value)
	}
	if len(all) != 1 {
		return sumField{}, Errorf(40238, "The field '%s' must specify one accumulator", name)
	}
	if all[0].key != "$sum" {
		return sumField{}, Errorf(15952, "unknown group operator '%s': it is not known to the model", all[0].key)
	}
	e, err := parseExpression(all[0].value)
	return sumField{name, e}, err
}

// group makes one document for each value of id, in the order in which they are met. The server
// promises no order.
func group(docs []bson.Raw, id expression, sums []sumField) ([]bson.Raw, error) {
	type entry struct {
		id     bson.RawValue
		totals []bson.RawValue // of each field
	}
	var ids []bson.RawValue // in order, to find the entries by
	var sorted, met []*entry
	for _, doc := range docs {
		v := orNull(id(doc))
		at, found := search(ids, v)
		if !found {
			e := &entry{id: v, totals: slices.Repeat([]bson.RawValue{intValue(0)}, len(sums))}
			ids, sorted, met = slices.Insert(ids, at, v), slices.Insert(sorted, at, e), append(met, e)
		}
		for i, f := range sums {
			x, total := f.expression(doc), &sorted[at].totals[i]
			if !isNumber(x) {
				continue
			}
			if err := addable(x); err != nil {
				return nil, err
			}
			sum, ok := add(*total, x)
			if !ok { // sums of whole numbers that have no room in 64 bits are doubles
				sum = doubleValue(total.AsFloat64() + x.AsFloat64())
			}
			*total = sum
		}
	}
	var made []bson.Raw
	for _, e := range met {
		b := newBuilder(0)
		b.add("_id", e.id)
		for i, f := range sums {
			b.add(f.name, e.totals[i])
		}
		made = append(made, b.doc())
	}
	return made, nil
}
