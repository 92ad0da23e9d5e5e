package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An expression computes a value from a document. The zero value is that of a field which is not
// there.
type expression func(doc bson.Raw) bson.RawValue

// parseExpression reads a constant, a path such as "$a.b", or an $add, a $max or a $min of these.
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

// parseOperands reads an operator over expressions: $max and $min leave out values that are not
// there, $add gives null where one is not.
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
	case "$max", "$min":
		return func(doc bson.Raw) (most bson.RawValue) {
			for _, e := range all {
				most = extreme(operator, most, e(doc))
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

// extreme is the higher ($max) or lower ($min) of two values; one that is not there, or null, does not count.
func extreme(operator string, a, b bson.RawValue) bson.RawValue {
	switch {
	case missing(b) || b.Type == bson.TypeNull:
		return a
	case missing(a) || (Compare(b, a) > 0) == (operator == "$max"):
		return b
	}
	return a
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

// A totalField is a field of $group's documents: the $sum of an expression's values, in which those that
// are no numbers do not count, or the $max or $min of them.
type totalField struct {
	name, operator string
	expression     expression
}

// add adds a document's value to the total.
func (f totalField) add(total, x bson.RawValue) (bson.RawValue, error) {
	if f.operator != "$sum" {
		return extreme(f.operator, total, x), nil
	}
	if missing(total) {
		total = intValue(0)
	}
	if !isNumber(x) {
		return total, nil
	}
	if err := addable(x); err != nil {
		return total, err
	}
	sum, ok := add(total, x)
	if !ok { // sums of whole numbers that have no room in 64 bits are doubles
		sum = doubleValue(total.AsFloat64() + x.AsFloat64())
	}
	return sum, nil
}

func parseGroup(operand bson.RawValue) (stage, error) {
	var id expression
	var totals []totalField
	for k, v := range Fields(operand.Value) {
		var err error
		if string(k) == "_id" {
			id, err = parseExpression(v)
		} else {
			var f totalField
			f, err = parseTotal(string(k), v)
			totals = append(totals, f)
		}
		if err != nil {
			return nil, err
		}
	}
	if id == nil {
		return nil, Errorf(15955, "a group specification must include an _id")
	}
	return func(docs []bson.Raw) ([]bson.Raw, error) { return group(docs, id, totals) }, nil
}

func parseTotal(name string, v bson.RawValue) (totalField, error) {
	var all []element
	if isDocument(v) {
		all = elements(v.Value)
	}
	if len(all) != 1 {
		return totalField{}, Errorf(40238, "The field '%s' must specify one accumulator", name)
	}
	if !slices.Contains([]string{"$sum", "$max", "$min"}, all[0].key) {
		return totalField{}, Errorf(15952, "unknown group operator '%s': it is not known to the model", all[0].key)
	}
	e, err := parseExpression(all[0].value)
	return totalField{name, all[0].key, e}, err
}

// group makes one document for each value of id, in the order in which they are met. The server
// promises no order.
func group(docs []bson.Raw, id expression, fields []totalField) ([]bson.Raw, error) {
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
			e := &entry{id: v, totals: make([]bson.RawValue, len(fields))}
			ids, sorted, met = slices.Insert(ids, at, v), slices.Insert(sorted, at, e), append(met, e)
		}
		for i, f := range fields {
			var err error
			if sorted[at].totals[i], err = f.add(sorted[at].totals[i], f.expression(doc)); err != nil {
				return nil, err
			}
		}
	}
	var made []bson.Raw
	for _, e := range met {
		b := newBuilder(0)
		b.add("_id", e.id)
		for i, f := range fields {
			b.add(f.name, orNull(e.totals[i]))
		}
		made = append(made, b.doc())
	}
	return made, nil
}
