package codec

import (
	"bytes"
	"strconv"
)

// A decimal is a JSON number in its one shortest form: digits × 10^exp, where
// digits have no zero at either end. Zero has no digits.
type decimal struct {
	negative bool
	digits   []byte
	exp      []byte // canonical whole number as text: it may have any length
}

// parseDecimal takes a valid JSON number apart. It works on the text alone, in
// linear time, so neither 1e400 nor an exponent of a thousand digits is
// rounded, overflows or costs more than reading it.
func parseDecimal(raw []byte) decimal {
	var d decimal
	if raw[0] == '-' {
		d.negative = true
		raw = raw[1:]
	}
	var exp []byte
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		raw, exp = raw[:e], raw[e+1:]
	}
	whole, fraction, _ := bytes.Cut(raw, []byte{'.'})
	digits := whole
	if len(fraction) > 0 {
		digits = append(append(make([]byte, 0, len(whole)+len(fraction)), whole...), fraction...)
	}
	digits = bytes.TrimLeft(digits, "0")
	short := bytes.TrimRight(digits, "0")
	if len(short) == 0 {
		return decimal{} // -0 is 0
	}
	d.digits = short
	d.exp = addToWhole(exp, int64(len(digits)-len(short))-int64(len(fraction)))
	return d
}

// addToWhole returns the whole number that text stands for ("" is 0), plus n,
// as canonical text.
func addToWhole(text []byte, n int64) []byte {
	negative := false
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		negative = text[0] == '-'
		text = text[1:]
	}
	text = bytes.TrimLeft(text, "0")
	if len(text) <= 18 { // and n is at most a text's length: no overflow
		small := int64(0)
		for _, c := range text {
			small = small*10 + int64(c-'0')
		}
		if negative {
			small = -small
		}
		return strconv.AppendInt(nil, small+n, 10)
	}
	// The magnitude is at least 10^18, so n cannot turn its sign.
	if negative {
		n = -n
	}
	sum := append(make([]byte, 0, len(text)+2), "-0"...)
	sum = append(sum, text...)
	for i := len(sum) - 1; i > 0 && n != 0; i-- {
		at := int64(sum[i]-'0') + n
		digit := (at%10 + 10) % 10
		sum[i] = byte('0' + digit)
		n = (at - digit) / 10
	}
	magnitude := bytes.TrimLeft(sum[1:], "0")
	if !negative {
		return magnitude
	}
	return append(sum[:1], magnitude...)
}

// appendTo appends the canonical text, such as -15e-1.
func (d decimal) appendTo(dst []byte) []byte {
	if len(d.digits) == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	dst = append(dst, d.digits...)
	dst = append(dst, 'e')
	return append(dst, d.exp...)
}

// wholeNumber reads a valid JSON number that is a whole one of at most 18
// digits, however it is written: 1000, 1e3 and 1000.0 are the same.
func wholeNumber(raw []byte) (n int64, ok bool) {
	if n, ok := parseDigits(raw); ok {
		return n, true
	}
	d := parseDecimal(raw)
	if len(d.digits) == 0 {
		return 0, true
	}
	zeros, err := strconv.Atoi(string(d.exp))
	if err != nil || zeros < 0 || zeros > 18 || len(d.digits)+zeros > 18 {
		return 0, false
	}
	n, _ = parseDigits(d.digits)
	for range zeros {
		n *= 10
	}
	if d.negative {
		n = -n
	}
	return n, true
}

// parseDigits reads up to 18 plain digits.
func parseDigits(raw []byte) (n int64, ok bool) {
	if len(raw) > 18 {
		return 0, false
	}
	for _, c := range raw {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
