package query

import (
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func comparing(holds func(int) bool) func([]bson.RawValue) (bson.RawValue, error) {
	return func(a []bson.RawValue) (bson.RawValue, error) {
		c := Compare(a[0], a[1])
		if c == 0 && missing(a[0]) != missing(a[1]) {
			c = 1
		}
		return boolValue(holds(c)), nil
	}
}

// absentArgument tells whether a null or missing argument makes the result null.
func absentArgument(a []bson.RawValue) bool {
	for _, v := range a {
		if missing(v) || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined {
			return true
		}
	}
	return false
}

func numbersOnly(op string, a []bson.RawValue) error {
	for _, v := range a {
		if !isNumber(v) {
			return Errorf(TypeMismatch, "%s of %s is not known to the model: it takes numbers", op, TypeName(v))
		}
	}
	return nil
}

func folding(op byte) func([]bson.RawValue) (bson.RawValue, error) {
	return func(a []bson.RawValue) (bson.RawValue, error) {
		if absentArgument(a) {
			return nullValue(), nil
		}
		if err := numbersOnly("arithmetic", a); err != nil {
			return bson.RawValue{}, err
		}
		result := intValue(0)
		if op == '*' {
			result = intValue(1)
		}
		for _, v := range a {
			result = widening(op, result, v)
		}
		return result, nil
	}
}

// widening computes in doubles what whole numbers have no room for, as expressions do.
func widening(op byte, a, b bson.RawValue) bson.RawValue {
	if v, ok := arithmetic(op, a, b); ok {
		return v
	}
	return doubleValue(floatArithmetic(op, a.AsFloat64(), b.AsFloat64()))
}

func subtract(a []bson.RawValue) (bson.RawValue, error) {
	switch {
	case absentArgument(a):
		return nullValue(), nil
	case a[0].Type == bson.TypeDateTime && a[1].Type == bson.TypeDateTime:
		return longValue(a[0].DateTime() - a[1].DateTime()), nil
	}
	if err := numbersOnly("$subtract", a); err != nil {
		return bson.RawValue{}, err
	}
	return widening('-', a[0], a[1]), nil
}

func divide(a []bson.RawValue) (bson.RawValue, error) {
	if absentArgument(a) {
		return nullValue(), nil
	}
	if err := numbersOnly("$divide", a); err != nil {
		return bson.RawValue{}, err
	}
	switch {
	case a[0].Type == bson.TypeDecimal128 || a[1].Type == bson.TypeDecimal128:
		return bson.RawValue{}, Errorf(BadValue, "$divide of decimals is not known to the model")
	case a[1].AsFloat64() == 0:
		return bson.RawValue{}, Errorf(BadValue, "can't $divide by zero")
	}
	return doubleValue(a[0].AsFloat64() / a[1].AsFloat64()), nil
}

func modulo(a []bson.RawValue) (bson.RawValue, error) {
	if absentArgument(a) {
		return nullValue(), nil
	}
	if err := numbersOnly("$mod", a); err != nil {
		return bson.RawValue{}, err
	}
	switch {
	case a[0].Type == bson.TypeDecimal128 || a[1].Type == bson.TypeDecimal128:
		return bson.RawValue{}, Errorf(BadValue, "$mod of decimals is not known to the model")
	case a[1].AsFloat64() == 0:
		return bson.RawValue{}, Errorf(16610, "can't $mod by zero")
	case !isWhole(a[0]) || !isWhole(a[1]):
		return doubleValue(math.Mod(a[0].AsFloat64(), a[1].AsFloat64())), nil
	}
	n := a[0].AsInt64() % a[1].AsInt64()
	if a[0].Type == bson.TypeInt32 && a[1].Type == bson.TypeInt32 {
		return intValue(n), nil
	}
	return longValue(n), nil
}

// spread gives a single array's elements in its place, as $max, $min and $sum have it.
func spread(a []bson.RawValue) []bson.RawValue {
	if len(a) == 1 && isArray(a[0]) {
		return values(a[0].Value)
	}
	return a
}

// extreme returns the greatest value for sign 1 and the least for -1; null does not count.
func extreme(all []bson.RawValue, sign int) bson.RawValue {
	var found bson.RawValue
	for _, v := range all {
		if !absentArgument([]bson.RawValue{v}) && (missing(found) || Compare(v, found)*sign > 0) {
			found = v
		}
	}
	return found
}

// sum leaves out what is no number.
func sum(all []bson.RawValue) bson.RawValue {
	total := intValue(0)
	for _, v := range all {
		if isNumber(v) {
			total = widening('+', total, v)
		}
	}
	return total
}

func concat(a []bson.RawValue) (bson.RawValue, error) {
	if absentArgument(a) {
		return nullValue(), nil
	}
	var all strings.Builder
	for _, v := range a {
		if v.Type != bson.TypeString {
			return v, Errorf(16702, "$concat only supports strings, not %s", TypeName(v))
		}
		all.WriteString(v.StringValue())
	}
	return stringValue(all.String()), nil
}

func arraySize(a []bson.RawValue) (bson.RawValue, error) {
	if !isArray(a[0]) {
		return a[0], Errorf(17124, "The argument to $size must be an array, but was of type: %s", TypeName(a[0]))
	}
	return intValue(int64(len(values(a[0].Value)))), nil
}

func isIn(a []bson.RawValue) (bson.RawValue, error) {
	if !isArray(a[1]) {
		return a[1], Errorf(40081, "$in requires an array as a second argument, found: %s", TypeName(a[1]))
	}
	for _, x := range Fields(a[1].Value) {
		if equal(x, a[0]) {
			return boolValue(true), nil
		}
	}
	return boolValue(false), nil
}

func elementAt(a []bson.RawValue) (bson.RawValue, error) {
	if absentArgument(a) {
		return nullValue(), nil
	}
	at, ok := asInt64(a[1])
	if !isArray(a[0]) || !ok {
		return a[0], Errorf(28689, "$arrayElemAt takes an array and a whole number, not %s and %s", TypeName(a[0]), TypeName(a[1]))
	}
	all := values(a[0].Value)
	if at < 0 {
		at += int64(len(all))
	}
	if at < 0 || at >= int64(len(all)) {
		return bson.RawValue{}, nil
	}
	return all[at], nil
}
