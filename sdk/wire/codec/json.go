package codec

import (
	"fmt"
	"unicode/utf8"
)

// SyntaxError says where a text stops being JSON, and why.
type SyntaxError struct {
	Offset int // of the first byte that does not fit
	Msg    string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg) }

// DepthError says that a JSON value is nested deeper than is allowed.
type DepthError struct{ Depth, Max int }

func (e *DepthError) Error() string {
	return fmt.Sprintf("nested %d deep; at most %d is allowed", e.Depth, e.Max)
}

// AppendCompact validates src as one JSON value (RFC 8259, valid UTF-8, arrays and objects nested
// at most maxDepth deep) and appends it to dst without insignificant white space. Member order,
// numbers and string escapes stay exactly as they came. The error is a *SyntaxError or a
// *DepthError, and dst is then returned as it was.
func AppendCompact(dst, src []byte, maxDepth int) ([]byte, error) {
	v, err := scanWhole(src)
	if err != nil {
		return dst, err
	}
	if int(v.depth) > maxDepth {
		return dst, &DepthError{Depth: int(v.depth), Max: maxDepth}
	}
	return v.appendCompact(dst), nil
}

// scanWhole scans b as one JSON value and nothing else.
func scanWhole(b []byte) (value, *SyntaxError) {
	if err := checkUTF8(b); err != nil {
		return value{}, err
	}
	s := scanner{b: b}
	s.space()
	v, err := s.value()
	if err != nil {
		return value{}, err
	}
	return v, s.end()
}

func checkUTF8(b []byte) *SyntaxError {
	if utf8.Valid(b) {
		return nil
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return &SyntaxError{Offset: i, Msg: "not valid UTF-8"}
		}
		i += n
	}
}

// value is one validated JSON value inside a text. The zero value means that there is none.
type value struct {
	raw []byte
	// kind is the first byte of raw, and '0' for every number.
	kind    byte
	escaped bool  // a string with at least one backslash
	spaced  bool  // an array or object with insignificant white space
	depth   int32 // of nested arrays and objects; 0 for a scalar
}

// given reports whether there is a value other than null.
func (v *value) given() bool { return v.kind != 0 && v.kind != 'n' }

// appendCompact appends the value without its insignificant white space.
func (v *value) appendCompact(dst []byte) []byte {
	if !v.spaced {
		return append(dst, v.raw...)
	}
	s := scanner{b: v.raw}
	for s.i < len(s.b) {
		start := s.i
		switch c := s.b[s.i]; {
		case isSpace(c):
			s.i++
			continue
		case c == '"':
			_, _ = s.str() // validated already; this finds its end
		default:
			s.i++
		}
		dst = append(dst, s.b[start:s.i]...)
	}
	return dst
}

// scanner walks over a JSON text once and checks its grammar. It does not check UTF-8: outside of
// strings every byte beyond ASCII is refused anyway, and one utf8.Valid over the whole text is far
// cheaper than one per string. It does not recurse, so nesting costs a bit a level and no stack.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) fail(msg string) *SyntaxError {
	if s.i >= len(s.b) {
		return &SyntaxError{Offset: len(s.b), Msg: "the text ends too early: " + msg}
	}
	return &SyntaxError{Offset: s.i, Msg: msg}
}

// peek returns the next byte, or 0, which fits nowhere, at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// space passes over white space and reports whether there was any.
func (s *scanner) space() bool {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] <= ' ' && isSpace(s.b[s.i]) {
		s.i++
	}
	return s.i > start
}

// end checks that nothing but white space is left.
func (s *scanner) end() *SyntaxError {
	s.space()
	if s.i < len(s.b) {
		return s.fail("expected the end of the text after the JSON value")
	}
	return nil
}

// value scans the value that starts at the next byte.
func (s *scanner) value() (v value, err *SyntaxError) {
	start := s.i
	switch v.kind = s.peek(); v.kind {
	case '"':
		v.escaped, err = s.str()
	case '{', '[':
		v.depth, v.spaced, err = s.nested()
	default:
		v.kind, err = s.scalar()
	}
	if err != nil {
		return value{}, err
	}
	v.raw = s.b[start:s.i:s.i]
	return v, nil
}

// nested scans an array or object with all that it contains.
func (s *scanner) nested() (deepest int32, spaced bool, err *SyntaxError) {
	t := Tokens{s: *s, place: atValue}
	for {
		if err := t.next(); err != nil {
			return 0, false, err
		}
		deepest = max(deepest, int32(t.open.depth))
		if t.open.depth == 0 {
			s.i = t.s.i
			return deepest, t.spaced, nil
		}
	}
}

// name scans a member's name and its colon, up to the member's value.
func (s *scanner) name() (v value, err *SyntaxError) {
	start, end := s.i, 0
	v.kind = '"'
	v.escaped, end, err = s.nameUpTo()
	v.raw = s.b[start:end:end]
	return v, err
}

// nameUpTo is name for one that keeps where the name is; end is behind its last quote.
func (s *scanner) nameUpTo() (escaped bool, end int, err *SyntaxError) {
	if s.peek() != '"' {
		return false, s.i, s.fail("expected a member's name in double quotes")
	}
	if escaped, err = s.str(); err != nil {
		return false, s.i, err
	}
	end = s.i
	s.space()
	if s.peek() != ':' {
		return false, end, s.fail("expected : after a member's name")
	}
	s.i++
	s.space()
	return escaped, end, nil
}

// members walks over the object that starts at the next byte. each is called with every name and
// must scan the value.
func (s *scanner) members(each func(name []byte) *SyntaxError) *SyntaxError {
	s.i++
	s.space()
	if s.peek() == '}' {
		s.i++
		return nil
	}
	for { // a loop of its own, not that of elements: a call less for each member
		name, err := s.name()
		if err != nil {
			return err
		}
		if err := each(name.name()); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case '}':
			s.i++
			return nil
		case ',':
			s.i++
			s.space()
		default:
			return s.fail("expected , or } after an object's member")
		}
	}
}

// elements walks over the array, or the object, that starts at the next byte. each is called before
// every element or member and must scan it.
func (s *scanner) elements(each func() *SyntaxError) *SyntaxError {
	end := closing(s.peek())
	s.i++
	s.space()
	if s.peek() == end {
		s.i++
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case end:
			s.i++
			return nil
		case ',':
			s.i++
			s.space()
		default:
			return s.fail("expected , or " + string(end) + " after an array's element")
		}
	}
}

// object scans the whole text, and calls member with each name of an object, whose value it must
// scan. isObject is false where the text is another value.
func (s *scanner) object(member func(name []byte) *SyntaxError) (isObject bool, err *SyntaxError) {
	s.space()
	if isObject = s.peek() == '{'; isObject {
		err = s.members(member)
	} else {
		err = s.skip()
	}
	if err == nil {
		err = s.end()
	}
	if bad := checkUTF8(s.b); bad != nil {
		err = bad
	}
	return isObject, err
}

// closing is the byte that closes the bracket c. In both pairs it is c+2.
func closing(c byte) byte { return c + 2 }

// nesting remembers for each open level whether it is an object, one bit each.
type nesting struct {
	depth int
	near  uint64   // the first 64 levels
	far   []uint64 // those beyond
}

func (n *nesting) push(c byte) {
	word := &n.near
	if n.depth >= 64 {
		at := n.depth/64 - 1
		if at == len(n.far) {
			n.far = append(n.far, 0)
		}
		word = &n.far[at]
	}
	bit := uint64(1) << (n.depth % 64)
	if c == '{' {
		*word |= bit
	} else {
		*word &^= bit
	}
	n.depth++
}

// innermost is the byte that opened the innermost level.
func (n *nesting) innermost() byte {
	word, at := n.near, n.depth-1
	if at >= 64 {
		word = n.far[at/64-1]
	}
	if word>>(at%64)&1 == 1 {
		return '{'
	}
	return '['
}
