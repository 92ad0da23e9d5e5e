package codec

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// scalar scans a number, true, false or null and returns its kind.
func (s *scanner) scalar() (kind byte, err *SyntaxError) {
	switch c := s.peek(); {
	case c == '-' || isDigit(c):
		return '0', s.number()
	case c == 't':
		return c, s.literal("true")
	case c == 'f':
		return c, s.literal("false")
	case c == 'n':
		return c, s.literal("null")
	}
	return 0, s.fail("expected a JSON value")
}

func (s *scanner) literal(word string) *SyntaxError {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return s.fail("expected " + word)
	}
	s.i += len(word)
	return nil
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// number scans [-] int [. digits] [e [+-] digits].
func (s *scanner) number() *SyntaxError {
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++
		if isDigit(s.peek()) {
			return s.fail("a number has no leading zero")
		}
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.i++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.peek()|0x20 == 'e' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() *SyntaxError {
	n := countDigits(s.b[s.i:])
	if n == 0 {
		return s.fail("expected a digit")
	}
	s.i += n
	return nil
}

// countDigits counts the leading digits of b.
func countDigits(b []byte) int {
	for i, c := range b {
		if !isDigit(c) {
			return i
		}
	}
	return len(b)
}

// str scans the string that starts at the next byte, quotes included, and reports whether it holds
// escapes.
func (s *scanner) str() (escaped bool, err *SyntaxError) {
	s.i++
	if len(s.b)-s.i >= 8 { // most names are short: they end within this word
		if hit := notPlain(binary.LittleEndian.Uint64(s.b[s.i:])); hit != 0 {
			s.i += bits.TrailingZeros64(hit) / 8
			if s.b[s.i] == '"' {
				s.i++
				return false, nil
			}
		}
	}
	for {
		s.i += plainPrefix(s.b[s.i:])
		switch c := s.peek(); {
		case c == '"':
			s.i++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		case s.i >= len(s.b):
			return false, s.fail("a string has no closing quote")
		default:
			return false, s.fail("a control character in a string must be escaped")
		}
	}
}

// escape scans one backslash sequence.
func (s *scanner) escape() *SyntaxError {
	s.i++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		s.i++
		for range 4 {
			if _, ok := unhex(s.peek()); !ok {
				return s.fail(`expected four hexadecimal digits after \u`)
			}
			s.i++
		}
		return nil
	}
	return s.fail("unknown escape in a string")
}

func unhex(c byte) (rune, bool) {
	switch {
	case isDigit(c):
		return rune(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	}
	return 0, false
}

// plainPrefix counts the leading bytes of b that stand for themselves in a JSON string: no quote,
// no backslash, no control character.
func plainPrefix(b []byte) int {
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		if hit := notPlain(binary.LittleEndian.Uint64(b[i:])); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// notPlain looks at eight bytes at a time: in each word below, the top bit of a byte is set if the
// byte does not stand for itself, and no bit below the first such byte is set by mistake.
func notPlain(x uint64) uint64 {
	const (
		ones  = 0x0101010101010101
		tops  = 0x80 * ones
		quote = '"' * ones
		slash = '\\' * ones
		space = ' ' * ones
	)
	q, s := x^quote, x^slash
	return ((q-ones)&^q | (s-ones)&^s | (x-space)&^x) & tops
}

// text decodes a string value. ok is false when it holds a lone surrogate escape, which no Go
// string (valid UTF-8) can stand for.
func (v *value) text() (text string, ok bool) {
	inner := v.raw[1 : len(v.raw)-1]
	if !v.escaped {
		return string(inner), true
	}
	b, lone := unescape(nil, inner)
	return string(b), !lone
}

// name returns a member's name for comparing, without copying it where that can be helped.
func (v *value) name() []byte {
	inner := v.raw[1 : len(v.raw)-1]
	if !v.escaped {
		return inner
	}
	b, _ := unescape(nil, inner)
	return b
}

// unescape appends the characters that the inside of a validated JSON string stands for. A lone
// surrogate is appended in UTF-8's manner (three bytes that no valid UTF-8 contains), so different
// strings stay different.
func unescape(dst, inner []byte) (out []byte, lone bool) {
	for i := 0; i < len(inner); {
		c := inner[i]
		if c != '\\' {
			n := plainPrefix(inner[i:])
			dst = append(dst, inner[i:i+n]...)
			i += n
			continue
		}
		c = inner[i+1]
		i += 2
		if c != 'u' {
			dst = append(dst, unescapeOne(c))
			continue
		}
		r := hex4(inner[i:])
		i += 4
		if utf16.IsSurrogate(r) {
			if pair := secondHalf(r, inner[i:]); pair != utf8.RuneError {
				r = pair
				i += 6
			} else {
				lone = true
				dst = append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
				continue
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, lone
}

func unescapeOne(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

func hex4(b []byte) (r rune) {
	for _, c := range b[:4] {
		d, _ := unhex(c)
		r = r<<4 | d
	}
	return r
}

// secondHalf joins the surrogate first with an escape at the start of rest, or returns RuneError
// when the two are no pair.
func secondHalf(first rune, rest []byte) rune {
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return utf8.RuneError
	}
	return utf16.DecodeRune(first, hex4(rest[2:]))
}

// AppendString appends s as a JSON string. It escapes only quotes, backslashes and control
// characters. Bytes that are not valid UTF-8, which no checked event holds, become U+FFFD so that
// the text stays JSON.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, s...)
	copied := dst[start:]
	if n := plainPrefix(copied); n < len(copied) || !utf8.Valid(copied) {
		dst = appendEscaped(dst[:start], s)
	}
	return append(dst, '"')
}

func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for _, r := range s { // a byte that is not UTF-8 comes as U+FFFD
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xF])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}
