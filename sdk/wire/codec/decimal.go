package codec

import (
	"bytes"
	"strconv"
)

// AppendDecimal appends a JSON number's one shortest form: 0, or a sign where it is negative,
// digits without zeros at either end, e, and the exponent. Numbers are equal as decimals when, and
// only when, these forms are. It works on the text alone, in linear time, so neither 1e400 nor an
// exponent of a thousand digits is rounded, overflows or costs more than reading it.
func AppendDecimal(dst, number []byte) []byte {
	start, rest := len(dst), number
	if rest[0] == '-' {
		dst, rest = append(dst, '-'), rest[1:]
	}
	first := len(dst)
	whole := 1 // a zero, which stands for nothing
	if rest[0] != '0' {
		whole = countDigits(rest)
		dst = append(dst, rest[:whole]...)
	}
	rest = rest[whole:]
	exp := int64(0)
	if len(rest) > 0 && rest[0] == '.' {
		fraction := rest[1:]
		n := countDigits(fraction)
		fraction, rest = fraction[:n], fraction[n:]
		exp = -int64(n)
		if len(dst) == first {
			fraction = bytes.TrimLeft(fraction, "0")
		}
		dst = append(dst, fraction...)
	}
	for ; len(dst) > first && dst[len(dst)-1] == '0'; exp++ {
		dst = dst[:len(dst)-1]
	}
	if len(dst) == first {
		return append(dst[:start], '0') // -0 is 0
	}
	dst = append(dst, 'e')
	if len(rest) > 0 {
		return appendSum(dst, rest[1:], exp)
	}
	return appendExponent(dst, exp)
}

func appendExponent(dst []byte, exp int64) []byte {
	switch {
	case 0 <= exp && exp < 10:
		return append(dst, byte('0'+exp))
	case -10 < exp && exp < 0:
		return append(dst, '-', byte('0'-exp))
	}
	return strconv.AppendInt(dst, exp, 10)
}

// appendSum appends the whole number that text stands for, plus n, which is at most a text's
// length.
func appendSum(dst, text []byte, n int64) []byte {
	negative := text[0] == '-'
	if negative || text[0] == '+' {
		text = text[1:]
	}
	text = bytes.TrimLeft(text, "0")
	if small, ok := parseDigits(text); ok {
		if negative {
			small = -small
		}
		return appendExponent(dst, small+n)
	}
	// The magnitude is at least 10^18, so n cannot turn its sign.
	if negative {
		dst, n = append(dst, '-'), -n
	}
	sum := append([]byte{'0'}, text...)
	for i := len(sum) - 1; n != 0; i-- {
		at := int64(sum[i]-'0') + n
		digit := (at%10 + 10) % 10
		sum[i] = byte('0' + digit)
		n = (at - digit) / 10
	}
	return append(dst, bytes.TrimLeft(sum, "0")...)
}

// wholeNumber reads a valid JSON number that is a whole one of at most 18 digits, however it is
// written: 1000, 1e3 and 1000.0 are the same.
func wholeNumber(raw []byte) (n int64, ok bool) {
	if n, ok := parseDigits(raw); ok {
		return n, true
	}
	digits, exp, _ := bytes.Cut(AppendDecimal(nil, raw), []byte{'e'})
	digits, negative := bytes.CutPrefix(digits, []byte{'-'})
	zeros, ok := parseDigits(exp)
	if !ok || int64(len(digits))+zeros > 18 {
		return 0, false
	}
	n, _ = parseDigits(digits)
	for range zeros {
		n *= 10
	}
	if negative {
		n = -n
	}
	return n, true
}

// parseDigits reads up to 18 plain digits; none are 0.
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
