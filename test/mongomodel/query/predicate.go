package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A predicate is a condition on one value.
type predicate interface {
	holds(bson.RawValue) bool
	// bounds returns a superset of the values that it holds for.
	bounds() Bounds
}

func newPredicate(op string, operand bson.RawValue) (predicate, error) {
	switch op {
	case "$eq", "$gt", "$gte", "$lt", "$lte":
		if operand.Type == bson.TypeRegex {
			return nil, Errorf(BadValue, "%s with a regular expression is not known to the model", op)
		}
		if operand.Type == bson.TypeUndefined {
			return nil, Errorf(BadValue, "cannot compare to undefined")
		}
		return comparison{op, operand}, nil
	case "$in":
		return newIn(operand)
	case "$type":
		return newTypeTest(operand)
	}
	return nil, Errorf(BadValue, "unknown operator: %s is not known to the model", op)
}

// A comparison holds for values of the operand's class only, so that {$gt: 5} selects no strings.
type comparison struct {
	op      string
	operand bson.RawValue
}

func (c comparison) holds(v bson.RawValue) bool {
	if c.operand.Type == bson.TypeNull && (missing(v) || v.Type == bson.TypeUndefined) {
		v = c.operand
	}
	if missing(v) {
		return false
	}
	extreme := c.operand.Type == bson.TypeMinKey || c.operand.Type == bson.TypeMaxKey
	if class(v.Type) != class(c.operand.Type) && !extreme {
		return false
	}
	order := Compare(v, c.operand)
	if isNaN(v) != isNaN(c.operand) {
		return false // NaN is in order with numbers, but no condition holds between them
	}
	switch c.op {
	case "$eq":
		return order == 0
	case "$gt":
		return order > 0
	case "$gte":
		return order >= 0
	case "$lt":
		return order < 0
	}
	return order <= 0
}

func isNaN(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeDouble:
		return v.Double() != v.Double()
	case bson.TypeDecimal128:
		return v.Decimal128().IsNaN()
	}
	return false
}

func (c comparison) bounds() Bounds {
	if c.operand.Type == bson.TypeNull {
		if c.op == "$gt" || c.op == "$lt" {
			return nil
		}
		return nullBounds
	}
	if c.op == "$eq" {
		return point(c.operand)
	}
	i := classBounds(c.operand.Type)
	if c.op == "$gt" || c.op == "$gte" {
		i.Low, i.LowOpen = c.operand, c.op == "$gt"
	} else {
		i.High, i.HighOpen = c.operand, c.op == "$lt"
	}
	return Bounds{i}
}

type in []bson.RawValue

func newIn(operand bson.RawValue) (predicate, error) {
	if !isArray(operand) {
		return nil, Errorf(BadValue, "$in needs an array")
	}
	var i in
	for _, x := range Fields(operand.Value) {
		switch {
		case x.Type == bson.TypeRegex:
			return nil, Errorf(BadValue, "$in with a regular expression is not known to the model")
		case isOperators(x):
			return nil, Errorf(BadValue, "cannot nest $ under $in")
		default:
			i = append(i, x)
		}
	}
	return in(sortedUnique(i)), nil
}

func (i in) holds(v bson.RawValue) bool {
	if missing(v) || v.Type == bson.TypeUndefined {
		v = nullValue()
	}
	_, found := search(i, v)
	return found
}

func (i in) bounds() Bounds {
	var b Bounds
	for _, v := range i {
		if v.Type == bson.TypeNull {
			b = append(b, nullBounds...)
			continue
		}
		b = append(b, point(v)...)
	}
	return b
}

// exists holds for every value. For the condition that a field is missing see absent.
type exists struct{}

func (exists) holds(v bson.RawValue) bool { return !missing(v) }
func (exists) bounds() Bounds             { return everything }

type typeTest []bson.Type

func newTypeTest(operand bson.RawValue) (predicate, error) {
	names := []bson.RawValue{operand}
	if isArray(operand) {
		names = values(operand.Value)
	}
	var t typeTest
	for _, name := range names {
		switch n, ok := asInt64(name); {
		case ok && n >= -1 && n <= 127 && n != 0:
			t = append(t, bson.Type(byte(n)))
		case name.Type != bson.TypeString:
			return nil, Errorf(BadValue, "Invalid numerical type code: %s", name)
		case name.StringValue() == "number":
			t = append(t, bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128)
		default:
			alias, known := typeAliases[name.StringValue()]
			if !known {
				return nil, Errorf(BadValue, "Unknown type name alias: %s", name.StringValue())
			}
			t = append(t, alias)
		}
	}
	return t, nil
}

func (t typeTest) holds(v bson.RawValue) bool { return slices.Contains(t, v.Type) }

func (t typeTest) bounds() Bounds {
	var b Bounds
	for _, want := range t {
		b = b.union(Bounds{classBounds(want)})
	}
	return b
}
