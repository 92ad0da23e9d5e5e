package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// class is a type's place among all types, as
// https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/ has it. Types of one
// class are compared by value.
func class(t bson.Type) int {
	switch t {
	case bson.TypeMinKey:
		return -1
	case 0, bson.TypeUndefined:
		return 0
	case bson.TypeNull:
		return 5
	case bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128:
		return 10
	case bson.TypeString, bson.TypeSymbol:
		return 15
	case bson.TypeEmbeddedDocument:
		return 20
	case bson.TypeArray:
		return 25
	case bson.TypeBinary:
		return 30
	case bson.TypeObjectID:
		return 35
	case bson.TypeBoolean:
		return 40
	case bson.TypeDateTime:
		return 45
	case bson.TypeTimestamp:
		return 47
	case bson.TypeRegex:
		return 50
	case bson.TypeDBPointer:
		return 55
	case bson.TypeJavaScript:
		return 60
	case bson.TypeCodeWithScope:
		return 65
	}
	return 127 // MaxKey
}

// Compare orders two values as MongoDB does across types. A zero RawValue stands for a missing
// field, which is below null.
func Compare(a, b bson.RawValue) int {
	if c := cmp.Compare(class(a.Type), class(b.Type)); c != 0 {
		return c
	}
	switch class(a.Type) {
	case 10:
		return compareNumbers(a, b)
	case 15, 60:
		return bytes.Compare(text(a), text(b))
	case 20, 25:
		return compareDocuments(a.Value, b.Value)
	case 30:
		return compareBinaries(a, b)
	case 45:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a.Value)), int64(binary.LittleEndian.Uint64(b.Value)))
	case 47:
		return cmp.Compare(binary.LittleEndian.Uint64(a.Value), binary.LittleEndian.Uint64(b.Value))
	case 65:
		codeA, scopeA := a.CodeWithScope()
		codeB, scopeB := b.CodeWithScope()
		return cmp.Or(strings.Compare(codeA, codeB), compareDocuments(scopeA, scopeB))
	}
	return bytes.Compare(a.Value, b.Value) // object ids, booleans, patterns with their options; and values of one value only
}

func equal(a, b bson.RawValue) bool { return Compare(a, b) == 0 }

// same tells values apart that only compare as equal, as 1 and 1.0 do.
func same(a, b bson.RawValue) bool { return a.Type == b.Type && bytes.Equal(a.Value, b.Value) }

// text is a string's content: its length stands before it, and a zero behind.
func text(v bson.RawValue) []byte { return v.Value[4 : len(v.Value)-1] }

// compareDocuments goes field by field: type first, then name, then value.
func compareDocuments(a, b []byte) int {
	restA, restB := elements(a), elements(b)
	for i, x := range restA {
		if i == len(restB) {
			break
		}
		y := restB[i]
		if c := cmp.Or(cmp.Compare(class(x.value.Type), class(y.value.Type)), strings.Compare(x.key, y.key), Compare(x.value, y.value)); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(restA), len(restB))
}

// compareBinaries compares the lengths, then the subtypes, then the contents.
func compareBinaries(a, b bson.RawValue) int {
	subtypeA, dataA := a.Binary()
	subtypeB, dataB := b.Binary()
	return cmp.Or(cmp.Compare(len(dataA), len(dataB)), cmp.Compare(subtypeA, subtypeB), bytes.Compare(dataA, dataB))
}

// AppendKey appends a value's bytes to dst, such that values have the same bytes if and only if
// they compare as equal, and the bytes of no value begin with those of another.
func AppendKey(dst []byte, v bson.RawValue) []byte {
	dst = append(dst, byte(class(v.Type)))
	switch class(v.Type) {
	case -1, 0, 5, 127:
		return dst
	case 10:
		if n, ok := asInt64(v); ok {
			return append(strconv.AppendInt(dst, n, 10), 0)
		}
		value, special := exact(v)
		if special != 0 {
			return append(strconv.AppendInt(append(dst, 'x'), int64(special), 10), 0)
		}
		return append(append(dst, value.String()...), 0)
	case 20:
		for k, x := range Fields(v.Value) {
			dst = AppendKey(append(append(append(dst, 1), k...), 0), x)
		}
		return append(dst, 0)
	case 25:
		for _, x := range Fields(v.Value) {
			dst = AppendKey(append(dst, 1), x)
		}
		return append(dst, 0)
	case 65:
		code, scope := v.CodeWithScope()
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(code)))
		return AppendKey(append(dst, code...), bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: scope})
	}
	return append(dst, v.Value...) // its length is in it, or fixed by its class, or ends with a zero
}
