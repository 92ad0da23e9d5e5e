package outbox

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// maxNesting is deeper than any document that MongoDB takes.
const maxNesting = 256

// fault describes a value that JSON cannot express, and where it is.
type fault struct {
	path string // below the value that was asked for: ".a.0.b"
	msg  string
}

// appendJSON appends a BSON value as compact JSON:
//
//	document, array        object (members in their order), array
//	string, symbol         string
//	int, long, double      number, equal as a decimal; NaN and infinities are a fault
//	Decimal128             number, with all of its digits; NaN and infinities are a fault
//	bool, null, undefined  true, false, null, null
//	date                   string, "2006-01-02T15:04:05.000Z", as JavaScript writes it
//	ObjectId               string, 24 hexadecimal digits
//	binary                 string: of subtype 4 a UUID's text, of others base64
//	all others             MongoDB's extended JSON, like {"$timestamp":{"t":1,"i":2}}
func appendJSON(dst []byte, v bson.RawValue, depth int) ([]byte, *fault) {
	switch v.Type {
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return appendElements(dst, v, depth)
	case bson.TypeString, bson.TypeSymbol:
		s, ok := v.StringValueOK()
		if v.Type == bson.TypeSymbol {
			s, ok = v.SymbolOK()
		}
		if !ok || !utf8.ValidString(s) {
			return dst, &fault{msg: "is not valid UTF-8"}
		}
		return codec.AppendString(dst, s), nil
	case bson.TypeInt32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case bson.TypeInt64:
		return strconv.AppendInt(dst, v.Int64(), 10), nil
	case bson.TypeDouble:
		return appendDouble(dst, v.Double())
	case bson.TypeDecimal128:
		d := v.Decimal128()
		if d.IsNaN() || d.IsInf() != 0 {
			return dst, &fault{msg: "is " + d.String() + ", for which JSON has no number"}
		}
		return append(dst, d.String()...), nil
	case bson.TypeBoolean:
		return strconv.AppendBool(dst, v.Boolean()), nil
	case bson.TypeNull, bson.TypeUndefined:
		return append(dst, "null"...), nil
	case bson.TypeDateTime:
		return append(appendDate(append(dst, '"'), v.DateTime()), '"'), nil
	case bson.TypeObjectID:
		return append(append(append(dst, '"'), v.ObjectID().Hex()...), '"'), nil
	case bson.TypeBinary:
		return appendBinary(dst, v), nil
	}
	return appendExtended(dst, v)
}

func appendDouble(dst []byte, f float64) ([]byte, *fault) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, &fault{msg: fmt.Sprintf("is %v, for which JSON has no number", f)}
	}
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64), nil
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64), nil
}

// appendDate writes years beyond four digits with a sign and six of them, as JavaScript does.
func appendDate(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	if year := t.Year(); year < 0 || year > 9999 {
		dst = fmt.Appendf(dst, "%+07d", year)
		return t.AppendFormat(dst, "-01-02T15:04:05.000Z")
	}
	return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}

func appendBinary(dst []byte, v bson.RawValue) []byte {
	subtype, data := v.Binary()
	dst = append(dst, '"')
	if subtype == bson.TypeBinaryUUID && len(data) == len(uuid.UUID{}) {
		dst = append(dst, uuid.UUID(data).String()...)
	} else {
		dst = base64.StdEncoding.AppendEncode(dst, data)
	}
	return append(dst, '"')
}

func appendExtended(dst []byte, v bson.RawValue) ([]byte, *fault) {
	out, err := codec.AppendCompact(dst, []byte(v.String()), maxNesting)
	if err != nil {
		return dst, &fault{msg: fmt.Sprintf("is a %s, which cannot be written as JSON", v.Type)}
	}
	return out, nil
}

func appendElements(dst []byte, v bson.RawValue, depth int) ([]byte, *fault) {
	if depth == maxNesting {
		return dst, &fault{msg: fmt.Sprintf("is nested more than %d deep", maxNesting)}
	}
	// Documents and arrays differ in nothing but their elements' names.
	elements, err := bson.Raw(v.Value).Elements()
	if err != nil {
		return dst, &fault{msg: "is not valid BSON"}
	}
	opening, closing := byte('{'), byte('}')
	if v.Type == bson.TypeArray {
		opening, closing = '[', ']'
	}
	dst = append(dst, opening)
	for i, e := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		name := e.Key()
		if opening == '{' {
			if !utf8.ValidString(name) {
				return dst, &fault{msg: "has a member whose name is not valid UTF-8"}
			}
			dst = append(codec.AppendString(dst, name), ':')
		}
		var f *fault
		if dst, f = appendJSON(dst, e.Value(), depth+1); f != nil {
			f.path = "." + name + f.path
			return dst, f
		}
	}
	return append(dst, closing), nil
}
