package query

import (
	"cmp"
	"math"
	"math/big"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func isNumber(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128:
		return true
	}
	return false
}

func isWhole(v bson.RawValue) bool { return v.Type == bson.TypeInt32 || v.Type == bson.TypeInt64 }

// intValue is a number as the server makes them: 32 bits where they suffice.
func intValue(n int64) bson.RawValue {
	if n == int64(int32(n)) {
		return bson.RawValue{Type: bson.TypeInt32, Value: bsoncore.AppendInt32(nil, int32(n))}
	}
	return longValue(n)
}

func longValue(n int64) bson.RawValue {
	return bson.RawValue{Type: bson.TypeInt64, Value: bsoncore.AppendInt64(nil, n)}
}

func doubleValue(f float64) bson.RawValue {
	return bson.RawValue{Type: bson.TypeDouble, Value: bsoncore.AppendDouble(nil, f)}
}

// asInt64 returns a whole number of any numeric type.
func asInt64(v bson.RawValue) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32:
		return int64(v.Int32()), true
	case bson.TypeInt64:
		return v.Int64(), true
	case bson.TypeDouble:
		f := v.Double()
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<63
	case bson.TypeDecimal128:
		if r, special := exact(v); special == 0 && r.IsInt() && r.Num().IsInt64() {
			return r.Num().Int64(), true
		}
	}
	return 0, false
}

// exact returns a number's value. NaN is special: below all others; and so are the infinities.
func exact(v bson.RawValue) (value *big.Rat, special int) {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		return new(big.Rat).SetInt64(v.AsInt64()), 0
	case bson.TypeDouble:
		switch f := v.Double(); {
		case math.IsNaN(f):
			return nil, -2
		case math.IsInf(f, -1):
			return nil, -1
		case math.IsInf(f, 1):
			return nil, 1
		default:
			return new(big.Rat).SetFloat64(f), 0
		}
	}
	d := v.Decimal128()
	if d.IsNaN() {
		return nil, -2
	}
	if inf := d.IsInf(); inf != 0 {
		return nil, inf
	}
	coefficient, exp, err := d.BigInt()
	if err != nil {
		return nil, -2
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil)
	if exp < 0 {
		return new(big.Rat).SetFrac(coefficient, power), 0
	}
	return new(big.Rat).SetInt(coefficient.Mul(coefficient, power)), 0
}

func compareNumbers(a, b bson.RawValue) int {
	if isWhole(a) && isWhole(b) {
		return cmp.Compare(a.AsInt64(), b.AsInt64())
	}
	if a.Type == bson.TypeDouble && b.Type == bson.TypeDouble {
		x, y := a.Double(), b.Double()
		if !math.IsNaN(x) && !math.IsNaN(y) {
			return cmp.Compare(x, y)
		}
	}
	x, xSpecial := exact(a)
	y, ySpecial := exact(b)
	if xSpecial != 0 || ySpecial != 0 {
		return cmp.Compare(xSpecial, ySpecial)
	}
	return x.Cmp(y)
}

// add adds two numbers as the server does: in the wider of their types. ok is false where whole
// numbers leave 64 bits. The model does not add decimals: see addable.
func add(a, b bson.RawValue) (result bson.RawValue, ok bool) {
	if a.Type == bson.TypeDouble || b.Type == bson.TypeDouble {
		return doubleValue(a.AsFloat64() + b.AsFloat64()), true
	}
	x, y := a.AsInt64(), b.AsInt64()
	total := x + y
	if total > x != (y > 0) {
		return bson.RawValue{}, false
	}
	if a.Type == bson.TypeInt64 || b.Type == bson.TypeInt64 {
		return longValue(total), true
	}
	return intValue(total), true
}

// addable refuses a number that add does not know.
func addable(v bson.RawValue) error {
	if v.Type == bson.TypeDecimal128 {
		return Errorf(BadValue, "arithmetic with the decimal %s is not known to the model", v)
	}
	return nil
}
