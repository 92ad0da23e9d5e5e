package query

import (
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A predicate is a condition on one value.
type predicate interface {
	// leaves tells whether the elements of an array are values of their own.
	leaves() bool
	holds(bson.RawValue) bool
	// bounds returns a superset of the values that it holds for.
	bounds() Bounds
}

func newPredicate(op string, operand bson.RawValue) (predicate, error) {
	switch op {
	case "$eq", "$gt", "$gte", "$lt", "$lte":
		if operand.Type == bson.TypeRegex && op != "$eq" {
			return nil, Errorf(BadValue, "Can't have RegEx as arg to predicate over field")
		}
		if operand.Type == bson.TypeUndefined {
			return nil, Errorf(BadValue, "cannot compare to undefined")
		}
		return comparison{op, operand}, nil
	case "$in":
		return newIn(operand)
	case "$type":
		return newTypeTest(operand)
	case "$size":
		n, ok := asInt64(operand)
		switch {
		case !ok:
			return nil, Errorf(FailedToParse, "Failed to parse $size. Expected a number in: $size: %s", operand)
		case n < 0:
			return nil, Errorf(FailedToParse, "Failed to parse $size. Expected a non-negative number in: $size: %d", n)
		}
		return size{int(n)}, nil
	case "$regex":
		return newPattern(operand)
	case "$elemMatch":
		return newElemMatch(operand)
	}
	return nil, Errorf(BadValue, "unknown operator: %s is not known to the model", op)
}

// A comparison holds for values of the operand's class only, so that {$gt: 5} selects no strings.
type comparison struct {
	op      string
	operand bson.RawValue
}

func (comparison) leaves() bool { return true }

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
	low, high := classBounds(c.operand.Type)
	switch c.op {
	case "$gt", "$gte":
		return Bounds{{Low: c.operand, High: high.value, LowOpen: c.op == "$gt", HighOpen: high.open}}
	}
	return Bounds{{Low: low.value, High: c.operand, LowOpen: low.open, HighOpen: c.op == "$lt"}}
}

type in struct {
	values   []bson.RawValue
	patterns []predicate
}

func newIn(operand bson.RawValue) (predicate, error) {
	if !isArray(operand) {
		return nil, Errorf(BadValue, "$in needs an array")
	}
	var i in
	for _, x := range Fields(operand.Value) {
		switch {
		case x.Type == bson.TypeRegex:
			p, err := newPattern(x)
			if err != nil {
				return nil, err
			}
			i.patterns = append(i.patterns, p)
		case isOperators(x):
			return nil, Errorf(BadValue, "cannot nest $ under $in")
		default:
			i.values = append(i.values, x)
		}
	}
	i.values = sortedUnique(i.values)
	return i, nil
}

func (in) leaves() bool { return true }

func (i in) holds(v bson.RawValue) bool {
	if missing(v) || v.Type == bson.TypeUndefined {
		v = nullValue()
	}
	if _, found := search(i.values, v); found {
		return true
	}
	for _, p := range i.patterns {
		if p.holds(v) {
			return true
		}
	}
	return false
}

func (i in) bounds() Bounds {
	if len(i.patterns) > 0 {
		return everything
	}
	var b Bounds
	for _, v := range i.values {
		if v.Type == bson.TypeNull {
			b = append(b, nullBounds...)
			continue
		}
		b = append(b, point(v)...)
	}
	return b
}

// exists holds for whatever is there. That a field is not there is a condition on the whole document: see absent.
type exists struct{}

func (exists) leaves() bool               { return false }
func (exists) holds(v bson.RawValue) bool { return !missing(v) }
func (exists) bounds() Bounds             { return everything }

type typeTest struct{ types []bson.Type }

func newTypeTest(operand bson.RawValue) (predicate, error) {
	names := []bson.RawValue{operand}
	if isArray(operand) {
		names = values(operand.Value)
	}
	var t typeTest
	for _, name := range names {
		switch n, ok := asInt64(name); {
		case ok && n >= -1 && n <= 127 && n != 0:
			t.types = append(t.types, bson.Type(byte(n)))
		case name.Type != bson.TypeString:
			return nil, Errorf(BadValue, "Invalid numerical type code: %s", name)
		case name.StringValue() == "number":
			t.types = append(t.types, bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128)
		default:
			alias, known := typeAliases[name.StringValue()]
			if !known {
				return nil, Errorf(BadValue, "Unknown type name alias: %s", name.StringValue())
			}
			t.types = append(t.types, alias)
		}
	}
	return t, nil
}

func (typeTest) leaves() bool { return true }

func (t typeTest) holds(v bson.RawValue) bool {
	for _, want := range t.types {
		if v.Type == want {
			return true
		}
	}
	return false
}

func (t typeTest) bounds() Bounds {
	var b Bounds
	for _, want := range t.types {
		low, high := classBounds(want)
		b = b.union(Bounds{{Low: low.value, High: high.value, LowOpen: low.open, HighOpen: high.open}})
	}
	return b
}

type size struct{ n int }

func (size) leaves() bool                 { return false }
func (s size) holds(v bson.RawValue) bool { return isArray(v) && len(values(v.Value)) == s.n }
func (size) bounds() Bounds               { return everything }

type pattern struct{ re *regexp.Regexp }

func newPattern(operand bson.RawValue) (predicate, error) {
	var source, options string
	switch operand.Type {
	case bson.TypeRegex:
		source, options = operand.Regex()
	case bson.TypeString:
		source = operand.StringValue()
	default:
		return nil, Errorf(BadValue, "$regex has to be a string")
	}
	for _, o := range options {
		if !strings.ContainsRune("ims", o) {
			return nil, Errorf(BadValue, "the option %q of a regular expression is not known to the model", o)
		}
	}
	if options != "" {
		source = "(?" + options + ")" + source
	}
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, Errorf(51091, "Regular expression is invalid or not known to the model: %v", err)
	}
	return pattern{re}, nil
}

func withOptions(operand, options bson.RawValue) (bson.RawValue, error) {
	if missing(options) {
		return operand, nil
	}
	if options.Type != bson.TypeString || operand.Type != bson.TypeString {
		return operand, Errorf(BadValue, "$options has to be a string, and so $regex beside it")
	}
	b := append([]byte(operand.StringValue()), 0)
	b = append(append(b, options.StringValue()...), 0)
	return bson.RawValue{Type: bson.TypeRegex, Value: b}, nil
}

func (pattern) leaves() bool { return true }

func (p pattern) holds(v bson.RawValue) bool {
	return (v.Type == bson.TypeString || v.Type == bson.TypeSymbol) && p.re.Match(text(v))
}

func (pattern) bounds() Bounds { return everything }

// An elemMatch holds for an array with one element for which all conditions hold, on its fields or on itself.
type elemMatch struct {
	conditions and
	values     bool
}

func newElemMatch(operand bson.RawValue) (predicate, error) {
	if !isDocument(operand) {
		return nil, Errorf(BadValue, "$elemMatch needs an Object")
	}
	first := ""
	for k := range Fields(operand.Value) {
		first = string(k)
		break
	}
	logical := first == "$and" || first == "$or" || first == "$nor"
	if !isOperators(operand) || logical {
		conditions, err := parseConditions(operand.Value)
		return elemMatch{conditions: conditions}, err
	}
	conditions, err := parseField("0", operand)
	return elemMatch{conditions: conditions, values: true}, err
}

func (elemMatch) leaves() bool { return false }

func (e elemMatch) holds(v bson.RawValue) bool {
	if !isArray(v) {
		return false
	}
	for _, x := range Fields(v.Value) {
		switch {
		case e.values:
			if e.conditions.match(documentOf([]element{{"0", x}}).Value) {
				return true
			}
		case isDocument(x) || isArray(x):
			if e.conditions.match(x.Value) {
				return true
			}
		}
	}
	return false
}

func (elemMatch) bounds() Bounds { return everything }
