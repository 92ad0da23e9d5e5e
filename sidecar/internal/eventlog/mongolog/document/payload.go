package document

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	// maxDepth is how deep a BSON payload's documents and arrays are nested. MongoDB takes 100
	// levels, of which the event takes one.
	maxDepth = 80
	// maxSearched is how many members of an object are searched one by one for a repeated name. If
	// there are more, they are sorted.
	maxSearched = 32
)

// appendValue appends the element key with a JSON text as its BSON value, if that is exact; if not,
// it returns dst with part of the value. Some numbers are not exact (see number.go), nor are values
// that are nested too deep or become too large. These are not exact either:
//
//   - a lone surrogate escape, which is not UTF-8;
//   - a member's name that is repeated, is empty, holds a dot or a zero byte or starts with a
//     dollar sign: servers refuse it, or read it as a path.
func appendValue(dst []byte, key string, text []byte) (out []byte, exact bool) {
	if len(text) > maxValueBytes {
		return dst, false
	}
	w := builders.Get().(*builder)
	w.dst = dst
	exact = w.root(key, text)
	out = w.dst
	w.giveBack()
	return out, exact
}

// builder makes a BSON value. Its methods return false when the value is not exact.
type builder struct {
	dst    []byte
	typeAt int     // where the type of the element that has been begun belongs
	open   []level // documents and arrays
	names  []span  // of the members so far, of all open documents
}

// level is an open document or array.
type level struct {
	start int32 // of its length
	array bool
	count int // of elements so far
	names int // where its own begin in builder.names
	// seen has a bit for each name's hash. So most names need no comparison with other names.
	seen uint64
}

// span is a part of dst.
type span struct{ from, to int }

var builders = sync.Pool{New: func() any {
	return &builder{open: make([]level, 0, maxDepth), names: make([]span, 0, 4*maxSearched)}
}}

func (w *builder) giveBack() {
	const most = 1024
	w.dst, w.open = nil, w.open[:0]
	if cap(w.names) > most {
		return
	}
	w.names = w.names[:0]
	builders.Put(w)
}

func (w *builder) root(key string, text []byte) bool {
	start := len(w.dst)
	w.typeAt = start
	w.dst = bsoncore.AppendHeader(w.dst, 0, key)
	tokens := codec.NewTokens(text)
	for {
		if err := tokens.Next(); err != nil { // no checked payload
			return false
		}
		if tokens.Kind == codec.TokenEnd {
			return true
		}
		if !w.token(&tokens) || len(w.dst)-start > maxValueBytes {
			return false
		}
	}
}

func (w *builder) token(tok *codec.Tokens) bool {
	switch tok.Kind {
	case codec.TokenName:
		return w.name(tok)
	case '}', ']':
		return w.close()
	}
	if n := len(w.open); n > 0 && w.open[n-1].array {
		w.typeAt = len(w.dst)
		w.dst = appendIndex(w.dst, 0, w.open[n-1].count)
		w.open[n-1].count++
	}
	switch tok.Kind {
	case '{':
		return w.begin(bsoncore.TypeEmbeddedDocument)
	case '[':
		return w.begin(bsoncore.TypeArray)
	case '"':
		w.setType(bsoncore.TypeString)
		start, dst := bsoncore.ReserveLength(w.dst)
		text, ok := tok.AppendText(dst)
		w.dst = closeString(text, start)
		return ok
	case codec.TokenNumber:
		return w.number(tok.Raw())
	case 'n':
		w.setType(bsoncore.TypeNull)
	default:
		w.setType(bsoncore.TypeBoolean)
		w.dst = bsoncore.AppendBoolean(w.dst, tok.Kind == 't')
	}
	return true
}

func (w *builder) setType(t bsoncore.Type) { w.dst[w.typeAt] = byte(t) }

func (w *builder) begin(t bsoncore.Type) bool {
	if len(w.open) == maxDepth {
		return false
	}
	w.setType(t)
	in := level{array: t == bsoncore.TypeArray, names: len(w.names)}
	in.start, w.dst = bsoncore.ReserveLength(w.dst)
	w.open = append(w.open, in)
	return true
}

func (w *builder) close() bool {
	in := &w.open[len(w.open)-1]
	w.dst = closeDocument(w.dst, in.start)
	unique := in.array || in.count <= maxSearched || w.unique(w.names[in.names:])
	w.names = w.names[:in.names]
	w.open = w.open[:len(w.open)-1]
	return unique
}

// unique reports whether no name comes twice.
func (w *builder) unique(names []span) bool {
	slices.SortFunc(names, func(a, b span) int { return bytes.Compare(w.dst[a.from:a.to], w.dst[b.from:b.to]) })
	for i := range names[1:] {
		if a, b := names[i], names[i+1]; bytes.Equal(w.dst[a.from:a.to], w.dst[b.from:b.to]) {
			return false
		}
	}
	return true
}

// name begins an element with the next member's name.
func (w *builder) name(tok *codec.Tokens) bool {
	w.typeAt = len(w.dst)
	from := w.typeAt + 1
	dst, ok := tok.AppendText(append(w.dst, 0))
	w.dst = append(dst, 0)
	name := dst[from:]
	if !ok || len(name) == 0 || name[0] == '$' {
		return false
	}
	hash := uint64(0)
	for _, b := range name {
		if b == '.' || b == 0 {
			return false
		}
		hash = hash*31 + uint64(b)
	}
	in := &w.open[len(w.open)-1]
	bit := uint64(1) << (hash % 61)
	if in.seen&bit != 0 && in.count < maxSearched {
		for _, s := range w.names[in.names:] {
			if bytes.Equal(w.dst[s.from:s.to], name) {
				return false
			}
		}
	}
	in.seen |= bit
	in.count++
	w.names = append(w.names, span{from, from + len(name)})
	return true
}

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
