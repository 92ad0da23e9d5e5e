package query

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Show returns a value as the server writes it in its messages.
func Show(v bson.RawValue) string {
	switch v.Type {
	case 0:
		return "missing"
	case bson.TypeString:
		return strconv.Quote(v.StringValue())
	case bson.TypeInt32, bson.TypeInt64:
		return strconv.FormatInt(v.AsInt64(), 10)
	case bson.TypeDouble:
		text := strconv.FormatFloat(v.Double(), 'g', -1, 64)
		if asInt, ok := asInt64(v); ok {
			text = strconv.FormatInt(asInt, 10) + ".0"
		}
		return text
	case bson.TypeObjectID:
		return fmt.Sprintf("ObjectId('%s')", v.ObjectID().Hex())
	case bson.TypeDateTime:
		return fmt.Sprintf("new Date(%d)", v.DateTime())
	case bson.TypeTimestamp:
		t, i := v.Timestamp()
		return fmt.Sprintf("Timestamp(%d, %d)", t, i)
	case bson.TypeBinary:
		subtype, data := v.Binary()
		return fmt.Sprintf("BinData(%d, %X)", subtype, data)
	case bson.TypeDecimal128:
		return v.Decimal128().String()
	case bson.TypeMinKey:
		return "MinKey"
	case bson.TypeMaxKey:
		return "MaxKey"
	case bson.TypeEmbeddedDocument:
		return ShowDocument(v.Value)
	case bson.TypeArray:
		var parts []string
		for _, x := range Fields(v.Value) {
			parts = append(parts, Show(x))
		}
		return "[ " + strings.Join(parts, ", ") + " ]"
	}
	return v.String()
}

// ShowDocument returns a document as the server writes it in its messages.
func ShowDocument(doc bson.Raw) string {
	var parts []string
	for k, v := range Fields(doc) {
		parts = append(parts, string(k)+": "+Show(v))
	}
	if len(parts) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}
