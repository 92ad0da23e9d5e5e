package document

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// maxReadDepth is deeper than any document that MongoDB takes.
const maxReadDepth = 256

var errBroken = errors.New("it is not valid BSON")

// scratches are buffers for JSON texts whose length is not known beforehand.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// jsonOf is a BSON value as JSON text.
func jsonOf(v bsoncore.Value) ([]byte, error) {
	const most = 64 << 10 // to keep
	scratch := scratches.Get().(*[]byte)
	text, err := appendJSON((*scratch)[:0], v, 0)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(text)), text...) // it may stay in caches: keep no slack
	if cap(text) <= most {
		*scratch = text
		scratches.Put(scratch)
	}
	return out, nil
}

// appendJSON appends a BSON value as compact JSON. Values that this package writes read back equal.
// Other programs' values that JSON cannot express become MongoDB's extended JSON.
func appendJSON(dst []byte, v bsoncore.Value, depth int) ([]byte, error) {
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		return appendElements(dst, v, depth)
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		text, ok := stringBytes(v)
		if !ok {
			return dst, errBroken
		}
		return codec.AppendStringBytes(dst, text), nil
	case bsoncore.TypeInt32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case bsoncore.TypeInt64:
		return strconv.AppendInt(dst, v.Int64(), 10), nil
	case bsoncore.TypeDouble:
		if f := v.Double(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return appendDouble(dst, f), nil
		}
	case bsoncore.TypeDecimal128:
		d := bson.NewDecimal128(v.Decimal128())
		if !d.IsNaN() && d.IsInf() == 0 {
			return appendDecimal(dst, d), nil
		}
	case bsoncore.TypeBoolean:
		return strconv.AppendBool(dst, v.Boolean()), nil
	case bsoncore.TypeNull, bsoncore.TypeUndefined:
		return append(dst, "null"...), nil
	case bsoncore.TypeCodeWithScope:
		return appendCode(dst, v, depth)
	}
	return appendExtended(dst, v)
}

// appendExtended appends a scalar as extended JSON.
func appendExtended(dst []byte, v bsoncore.Value) ([]byte, error) {
	dst, err := codec.AppendCompact(dst, []byte(v.String()), maxReadDepth)
	if err != nil {
		return dst, fmt.Errorf("a value of type %s in it cannot be written as JSON", v.Type)
	}
	return dst, nil
}

func appendCode(dst []byte, v bsoncore.Value, depth int) ([]byte, error) {
	code, scope, ok := v.CodeWithScopeOK()
	if !ok {
		return dst, errBroken
	}
	dst = codec.AppendString(append(dst, `{"$code":`...), code)
	dst, err := appendElements(append(dst, `,"$scope":`...), bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: scope}, depth+1)
	return append(dst, '}'), err
}

// appendElements appends a document or an array.
func appendElements(dst []byte, v bsoncore.Value, depth int) ([]byte, error) {
	if depth == maxReadDepth {
		return dst, fmt.Errorf("it is nested more than %d deep", maxReadDepth)
	}
	opening, closing := byte('{'), byte('}')
	if v.Type == bsoncore.TypeArray {
		opening, closing = '[', ']'
	}
	dst = append(dst, opening)
	it, ok := elementsOf(v.Data)
	for first := true; ok && it.more(); first = false {
		var name []byte
		var inner bsoncore.Value
		if name, inner, ok = it.next(); !ok {
			break
		}
		if !first {
			dst = append(dst, ',')
		}
		if opening == '{' {
			dst = append(codec.AppendStringBytes(dst, name), ':')
		}
		var err error
		if dst, err = appendJSON(dst, inner, depth+1); err != nil {
			return dst, err
		}
	}
	if !ok {
		return dst, errBroken
	}
	return append(dst, closing), nil
}

// elements walks over the inside of a document or an array.
type elements struct{ rest []byte }

func elementsOf(doc []byte) (it elements, ok bool) {
	n, _, ok := bsoncore.ReadLength(doc)
	if !ok || n < 5 || int(n) > len(doc) || doc[n-1] != 0 {
		return elements{}, false
	}
	return elements{rest: doc[4 : n-1]}, true
}

func (it *elements) more() bool { return len(it.rest) > 0 }

// next returns the next element. The value has all the bytes of its type.
func (it *elements) next() (name []byte, v bsoncore.Value, ok bool) {
	end := bytes.IndexByte(it.rest[1:], 0) + 1
	if end == 0 {
		return nil, v, false
	}
	name = it.rest[1:end]
	v, it.rest, ok = bsoncore.ReadValue(it.rest[end+1:], bsoncore.Type(it.rest[0]))
	return name, v, ok
}

// stringBytes is the text of a string, a symbol or code.
func stringBytes(v bsoncore.Value) (text []byte, ok bool) {
	n := len(v.Data) // the length and the text were read by next
	if n < 5 || v.Data[n-1] != 0 {
		return nil, false
	}
	return v.Data[4 : n-1], true
}
