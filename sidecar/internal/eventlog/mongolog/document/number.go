package document

import (
	"bytes"
	"math"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// number writes a JSON number as the first of int32, int64, double and Decimal128 that holds it.
// Whole numbers with a fraction or an exponent become doubles, as their writer had them. Whole
// numbers of plain digits become doubles only if no other type holds them, since a double does not
// read back as plain digits.
func (w *builder) number(raw []byte) bool {
	if isWhole(raw) {
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			if n >= math.MinInt32 && n <= math.MaxInt32 {
				w.setType(bsoncore.TypeInt32)
				w.dst = bsoncore.AppendInt32(w.dst, int32(n))
			} else {
				w.setType(bsoncore.TypeInt64)
				w.dst = bsoncore.AppendInt64(w.dst, n)
			}
			return true
		}
		if w.decimal(raw) {
			return true
		}
	}
	if f, ok := exactDouble(raw); ok {
		w.setType(bsoncore.TypeDouble)
		w.dst = bsoncore.AppendDouble(w.dst, f)
		return true
	}
	return w.decimal(raw)
}

// isWhole reports whether raw is plain digits. It is false for -0, since only a double keeps that
// sign.
func isWhole(raw []byte) bool {
	for _, c := range raw {
		if c == '.' || c|0x20 == 'e' {
			return false
		}
	}
	return string(raw) != "-0"
}

// exactDouble returns the double whose shortest decimal form is equal to raw.
func exactDouble(raw []byte) (f float64, ok bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, false // beyond the largest
	}
	if shortDecimal(raw) {
		return f, true
	}
	var buf, a, b [64]byte
	short := strconv.AppendFloat(buf[:0], f, 'e', -1, 64)
	return f, bytes.Equal(codec.AppendDecimal(a[:0], raw), codec.AppendDecimal(b[:0], short))
}

// shortDecimal reports whether raw is a decimal that a double certainly returns unchanged: up to 15
// significant digits, and not too far from 1.
func shortDecimal(raw []byte) bool {
	if len(raw) > 30 {
		return false
	}
	significant := 0
	for _, c := range raw {
		switch {
		case c|0x20 == 'e':
			return false
		case c >= '1' && c <= '9', c == '0' && significant > 0:
			significant++
		}
	}
	return significant <= 15
}

// maxDecimalDigits is how many digits a Decimal128 has.
const maxDecimalDigits = 34

// decimal writes the Decimal128 that is equal to raw.
func (w *builder) decimal(raw []byte) bool {
	const maxExponent = len("-6176")
	text := codec.AppendDecimal(nil, raw)
	digits, exponent, _ := bytes.Cut(bytes.TrimPrefix(text, []byte{'-'}), []byte{'e'})
	if len(digits) > maxDecimalDigits || len(exponent) > maxExponent {
		return false // before the parser spends time on it
	}
	d, err := bson.ParseDecimal128(string(text))
	if err != nil {
		return false
	}
	high, low := d.GetBytes()
	w.setType(bsoncore.TypeDecimal128)
	w.dst = bsoncore.AppendDecimal128(w.dst, high, low)
	return true
}

// appendDecimal appends a finite Decimal128 as a JSON number. A whole number with few enough digits
// is written in plain digits, since some readers accept only those as whole.
func appendDecimal(dst []byte, d bson.Decimal128) []byte {
	digits, exponent, err := d.BigInt()
	if err != nil || exponent <= 0 || digits.Sign() == 0 {
		return append(dst, d.String()...)
	}
	start := len(dst)
	dst = digits.Append(dst, 10)
	if len(bytes.TrimPrefix(dst[start:], []byte{'-'}))+exponent > maxDecimalDigits {
		return append(dst[:start], d.String()...)
	}
	return append(dst, bytes.Repeat([]byte{'0'}, exponent)...)
}

// appendDouble appends a finite double as a JSON number that is equal to its shortest decimal form
// and still looks like a double.
func appendDouble(dst []byte, f float64) []byte {
	size := math.Abs(f)
	if size != 0 && (size < 1e-6 || size >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}
