package query

import (
	"math"
	"math/big"
	"strconv"

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

func decimalValue(d bson.Decimal128) bson.RawValue {
	high, low := d.GetBytes()
	return bson.RawValue{Type: bson.TypeDecimal128, Value: bsoncore.AppendDecimal128(nil, high, low)}
}

// asInt64 returns a number that is whole, whatever its type.
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
		return compareOrdered(a.AsInt64(), b.AsInt64())
	}
	if a.Type == bson.TypeDouble && b.Type == bson.TypeDouble {
		x, y := a.Double(), b.Double()
		if !math.IsNaN(x) && !math.IsNaN(y) {
			return compareOrdered(x, y)
		}
	}
	x, xSpecial := exact(a)
	y, ySpecial := exact(b)
	if xSpecial != 0 || ySpecial != 0 {
		return compareOrdered(xSpecial, ySpecial)
	}
	return x.Cmp(y)
}

// arithmetic computes with two numbers as the server does: in the wider of their types. ok is false where whole numbers
// leave 64 bits. The operation is one of + - * on values that are exact in its type, so doubles are computed as such.
func arithmetic(op byte, a, b bson.RawValue) (result bson.RawValue, ok bool) {
	switch {
	case a.Type == bson.TypeDecimal128 || b.Type == bson.TypeDecimal128:
		return decimalArithmetic(op, toDecimal(a), toDecimal(b)), true
	case a.Type == bson.TypeDouble || b.Type == bson.TypeDouble:
		return doubleValue(floatArithmetic(op, a.AsFloat64(), b.AsFloat64())), true
	}
	x, y := big.NewInt(a.AsInt64()), big.NewInt(b.AsInt64())
	switch op {
	case '+':
		x.Add(x, y)
	case '-':
		x.Sub(x, y)
	case '*':
		x.Mul(x, y)
	}
	if !x.IsInt64() {
		return bson.RawValue{}, false
	}
	if a.Type == bson.TypeInt64 || b.Type == bson.TypeInt64 {
		return longValue(x.Int64()), true
	}
	return intValue(x.Int64()), true
}

func floatArithmetic(op byte, x, y float64) float64 {
	switch op {
	case '+':
		return x + y
	case '-':
		return x - y
	}
	return x * y
}

// toDecimal converts a number. A double keeps 15 digits, as on the server.
func toDecimal(v bson.RawValue) bson.Decimal128 {
	var text string
	switch v.Type {
	case bson.TypeDecimal128:
		return v.Decimal128()
	case bson.TypeDouble:
		text = strconv.FormatFloat(v.Double(), 'e', 14, 64)
	default:
		text = strconv.FormatInt(v.AsInt64(), 10)
	}
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		d, _ = bson.ParseDecimal128("NaN")
	}
	return d
}

const decimalDigits = 34

func decimalArithmetic(op byte, a, b bson.Decimal128) bson.RawValue {
	x, xExp, errX := a.BigInt()
	y, yExp, errY := b.BigInt()
	if errX != nil || errY != nil { // NaN or an infinity: what doubles make of them holds for decimals too
		f := floatArithmetic(op, specialFloat(a), specialFloat(b))
		d, _ := bson.ParseDecimal128(strconv.FormatFloat(f, 'g', -1, 64))
		if math.IsInf(f, 0) {
			d, _ = bson.ParseDecimal128(map[bool]string{true: "Infinity", false: "-Infinity"}[f > 0])
		}
		return decimalValue(d)
	}
	exp := min(xExp, yExp)
	switch op {
	case '*':
		x.Mul(x, y)
		exp = xExp + yExp
	default:
		x.Mul(x, pow10(xExp-exp))
		y.Mul(y, pow10(yExp-exp))
		if op == '-' {
			y.Neg(y)
		}
		x.Add(x, y)
	}
	return decimalValue(roundDecimal(x, exp))
}

func specialFloat(d bson.Decimal128) float64 {
	switch {
	case d.IsNaN():
		return math.NaN()
	case d.IsInf() != 0:
		return math.Inf(d.IsInf())
	}
	coefficient, _, _ := d.BigInt()
	return float64(coefficient.Sign())
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// roundDecimal rounds half to even, at the last digit that a decimal has room for.
func roundDecimal(x *big.Int, exp int) bson.Decimal128 {
	if extra := len(new(big.Int).Abs(x).String()) - decimalDigits; extra > 0 {
		unit := pow10(extra)
		negative := x.Sign() < 0
		quotient, remainder := new(big.Int).QuoRem(x.Abs(x), unit, new(big.Int))
		half := remainder.Lsh(remainder, 1).Cmp(unit)
		if half > 0 || half == 0 && quotient.Bit(0) == 1 {
			quotient.Add(quotient, big.NewInt(1))
		}
		if negative {
			quotient.Neg(quotient)
		}
		x, exp = quotient, exp+extra
	}
	d, ok := bson.ParseDecimal128FromBigInt(x, exp)
	if !ok {
		text := "Infinity"
		switch {
		case exp < 0:
			text = "0"
		case x.Sign() < 0:
			text = "-Infinity"
		}
		d, _ = bson.ParseDecimal128(text)
	}
	return d
}
