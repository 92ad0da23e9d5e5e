package document

import (
	"bytes"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

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
