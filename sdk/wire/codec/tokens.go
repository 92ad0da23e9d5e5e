package codec

import "unicode/utf8"

// Kinds of tokens that are not the first byte of a JSON value.
const (
	TokenEnd    byte = 0   // the text is over
	TokenName   byte = ':' // a member's name; its value follows
	TokenNumber byte = '0'
)

// Tokens splits a JSON text into tokens, for code that converts events into another form. It checks
// the text as AppendCompact does, only that nesting has no bound, and keeps nothing but a bit for
// each level. It stands on one token at a time, at first on none.
type Tokens struct {
	// Kind is TokenEnd, TokenName, TokenNumber, or the token's first byte: one of { } [ ] " t f n.
	Kind    byte
	escaped bool
	spaced  bool // there was white space so far
	place   place
	start   int // of the token's text
	end     int
	s       scanner
	open    nesting
}

// place is where in the grammar the next token is.
type place byte

const (
	atStart place = iota
	atValue       // after a name and its colon
	atFirst       // after an opening bracket
	behindValue
)

// NewTokens is for the text's tokens.
func NewTokens(text []byte) Tokens { return Tokens{s: scanner{b: text}} }

// Raw is a number's text.
func (t *Tokens) Raw() []byte { return t.s.b[t.start:t.end] }

// AppendText appends the text of a string or a name, without escapes. ok is false when it holds a
// lone surrogate escape, which no valid UTF-8 can stand for.
func (t *Tokens) AppendText(dst []byte) (text []byte, ok bool) {
	inner := t.s.b[t.start+1 : t.end-1]
	if !t.escaped {
		return append(dst, inner...), true
	}
	dst, lone := unescape(dst, inner)
	return dst, !lone
}

// Next goes to the next token: to TokenEnd, again and again, when there is none left. After an
// error, which is a *SyntaxError, there are no more tokens.
func (t *Tokens) Next() error {
	if err := t.next(); err != nil {
		return err
	}
	return nil
}

func (t *Tokens) next() *SyntaxError {
	s := &t.s
	t.space()
	switch t.place {
	case atStart:
		if err := checkUTF8(s.b); err != nil {
			return err
		}
	case atFirst:
		inside := t.open.innermost()
		if s.peek() == closing(inside) {
			return t.close()
		}
		if inside == '{' {
			return t.name()
		}
	case behindValue:
		if t.open.depth == 0 {
			t.Kind = TokenEnd
			return s.end()
		}
		inside := t.open.innermost()
		switch s.peek() {
		case closing(inside):
			return t.close()
		case ',':
			s.i++
			t.space()
			if inside == '{' {
				return t.name()
			}
		default:
			return s.fail("expected , or " + string(closing(inside)) + " after a value")
		}
	}
	t.start = s.i
	t.place = behindValue
	var err *SyntaxError
	switch t.Kind = s.peek(); t.Kind {
	case '"':
		t.escaped, err = s.str()
	case '{', '[':
		s.i++
		t.open.push(t.Kind)
		t.place = atFirst
	default:
		t.Kind, err = s.scalar()
	}
	t.end = s.i
	return err
}

// space passes over white space.
func (t *Tokens) space() {
	if t.s.i < len(t.s.b) && t.s.b[t.s.i] <= ' ' && t.s.space() {
		t.spaced = true
	}
}

func (t *Tokens) name() (err *SyntaxError) {
	t.Kind, t.start, t.place = TokenName, t.s.i, atValue
	t.escaped, t.end, err = t.s.nameUpTo()
	t.spaced = t.spaced || t.s.i > t.end+len(":")
	return err
}

func (t *Tokens) close() *SyntaxError {
	t.Kind = t.s.peek()
	t.s.i++
	t.open.depth--
	t.place = behindValue
	return nil
}

// AppendStringBytes is AppendString for a text that is in a byte slice.
func AppendStringBytes(dst, text []byte) []byte {
	if plainPrefix(text) < len(text) || !utf8.Valid(text) {
		return AppendString(dst, string(text))
	}
	return append(append(append(dst, '"'), text...), '"')
}
