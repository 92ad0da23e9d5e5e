package query

import (
	"encoding/binary"
	"iter"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// maxDepth is how deep documents may be nested, as on the server. It bounds every recursion here.
const maxDepth = 180

// An element is a field of a document. A value of type 0 is a missing one.
type element struct {
	key   string
	value bson.RawValue
}

// Fields returns a document's or an array's fields. It ends where the bytes are no document any
// more.
func Fields(doc []byte) iter.Seq2[[]byte, bson.RawValue] {
	return func(yield func([]byte, bson.RawValue) bool) {
		if len(doc) < 5 {
			return
		}
		rest := doc[4:]
		for len(rest) > 1 {
			e, after, ok := bsoncore.ReadElement(rest)
			if !ok {
				return
			}
			rest = after
			key, err := e.KeyBytesErr()
			if err != nil || !yield(key, bson.RawValue{Type: bson.Type(e[0]), Value: e[len(key)+2:]}) {
				return
			}
		}
	}
}

// Lookup returns a document's field, or the zero value. It does not look at paths: a dot is part of
// the name.
func Lookup(doc bson.Raw, key string) bson.RawValue {
	if len(doc) < 5 {
		return bson.RawValue{}
	}
	for rest := doc[4:]; len(rest) > 1; {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			break
		}
		if len(e) > len(key)+1 && e[len(key)+1] == 0 && string(e[1:len(key)+1]) == key {
			return bson.RawValue{Type: bson.Type(e[0]), Value: e[len(key)+2:]}
		}
		rest = after
	}
	return bson.RawValue{}
}

func missing(v bson.RawValue) bool { return v.Type == 0 }

func isDocument(v bson.RawValue) bool { return v.Type == bson.TypeEmbeddedDocument }

func isArray(v bson.RawValue) bool { return v.Type == bson.TypeArray }

func elements(doc []byte) []element {
	var all []element
	for k, v := range Fields(doc) {
		all = append(all, element{string(k), v})
	}
	return all
}

func values(array []byte) []bson.RawValue {
	var all []bson.RawValue
	for _, v := range Fields(array) {
		all = append(all, v)
	}
	return all
}

// IsEmpty tells whether a value, such as a hint, is missing or empty.
func IsEmpty(v bson.RawValue) bool {
	return missing(v) || isDocument(v) && len(elements(v.Value)) == 0 || v.Type == bson.TypeString && v.StringValue() == ""
}

// IDFirst returns a document with its _id as the first field, where the server stores it.
func IDFirst(doc bson.Raw) bson.Raw {
	if first, err := doc.IndexErr(0); err == nil && first.Key() == "_id" {
		return doc
	}
	return WithID(doc, Lookup(doc, "_id"))
}

// A builder makes a document.
type builder struct{ buf []byte }

func newBuilder(size int) *builder {
	return &builder{buf: append(make([]byte, 0, size+64), 0, 0, 0, 0)}
}

// add appends a field, unless it is a missing one.
func (b *builder) add(key string, v bson.RawValue) {
	if missing(v) {
		return
	}
	b.buf = append(append(append(b.buf, byte(v.Type)), key...), 0)
	b.buf = append(b.buf, v.Value...)
}

func (b *builder) doc() bson.Raw {
	b.buf = append(b.buf, 0)
	binary.LittleEndian.PutUint32(b.buf, uint32(len(b.buf)))
	return b.buf
}

func documentOf(all []element) bson.RawValue {
	b := newBuilder(0)
	for _, e := range all {
		b.add(e.key, e.value)
	}
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: b.doc()}
}

func arrayOf(all []bson.RawValue) bson.RawValue {
	b := newBuilder(0)
	for i, v := range all {
		b.add(strconv.Itoa(i), v)
	}
	return bson.RawValue{Type: bson.TypeArray, Value: b.doc()}
}

func nullValue() bson.RawValue { return bson.RawValue{Type: bson.TypeNull} }

func orNull(v bson.RawValue) bson.RawValue {
	if missing(v) {
		return nullValue()
	}
	return v
}

func boolValue(b bool) bson.RawValue {
	return bson.RawValue{Type: bson.TypeBoolean, Value: bsoncore.AppendBoolean(nil, b)}
}

func stringValue(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(nil, s)}
}

// truth is a flag's value as a boolean: null, missing, false and zero are false.
func truth(v bson.RawValue) bool {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return false
	case bson.TypeBoolean:
		return v.Boolean()
	}
	return !isNumber(v) || Compare(v, intValue(0)) != 0
}

// typeAliases are the names that $type knows.
var typeAliases = map[string]bson.Type{
	"double": bson.TypeDouble, "string": bson.TypeString, "object": bson.TypeEmbeddedDocument, "array": bson.TypeArray,
	"binData": bson.TypeBinary, "undefined": bson.TypeUndefined, "objectId": bson.TypeObjectID, "bool": bson.TypeBoolean,
	"date": bson.TypeDateTime, "null": bson.TypeNull, "regex": bson.TypeRegex, "dbPointer": bson.TypeDBPointer,
	"javascript": bson.TypeJavaScript, "symbol": bson.TypeSymbol, "javascriptWithScope": bson.TypeCodeWithScope,
	"int": bson.TypeInt32, "timestamp": bson.TypeTimestamp, "long": bson.TypeInt64, "decimal": bson.TypeDecimal128,
	"minKey": bson.TypeMinKey, "maxKey": bson.TypeMaxKey,
}

// TypeName is a value's type in error messages.
func TypeName(v bson.RawValue) string {
	for name, t := range typeAliases {
		if t == v.Type {
			return name
		}
	}
	return "missing"
}
