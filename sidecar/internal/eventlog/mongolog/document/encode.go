package document

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Append appends the record, of that generation of its topic, as a whole document. If the document
// would be larger than MongoDB takes, it returns an error and dst as it was.
func Append(dst []byte, topic string, generation int64, r *eventlog.Record, writer int64) ([]byte, error) {
	start, dst := bsoncore.ReserveLength(dst)
	dst = appendID(dst, Prefix(topic, generation), r.ID)
	dst = bsoncore.AppendStringElement(dst, FieldTopic, topic)
	dst = bsoncore.AppendInt32Element(dst, FieldPartition, int32(r.Partition))
	dst = bsoncore.AppendInt64Element(dst, FieldSeq, int64(r.Seq))
	dst = bsoncore.AppendInt64Element(dst, FieldTS, r.TS)
	dst = bsoncore.AppendInt64Element(dst, FieldAccepted, r.AcceptedAt)
	dst = bsoncore.AppendStringElement(dst, FieldEventID, r.ID)
	dst = appendOptional(dst, FieldKey, r.Key)
	dst = appendOptional(dst, FieldSID, r.SID)
	if r.TTLMS > 0 {
		dst = bsoncore.AppendInt64Element(dst, FieldTTL, r.TTLMS)
	}
	dst = appendList(dst, FieldTags, r.Tags)
	dst = appendList(dst, FieldCausedBy, r.CausedBy)
	dst = appendHeaders(dst, r.Headers)
	dst = appendPayload(dst, &r.Event)
	hash := codec.ContentHash(&r.Event)
	dst = bsoncore.AppendBinaryElement(dst, FieldHash, bson.TypeBinaryGeneric, hash[:])
	dst = bsoncore.AppendInt64Element(dst, FieldWriter, writer)
	if r.DeliverAt != 0 {
		dst = bsoncore.AppendBooleanElement(dst, FieldGone, true)
		dst = bsoncore.AppendInt64Element(dst, FieldDeliverAt, r.DeliverAt)
		dst = bsoncore.AppendInt32Element(dst, FieldDueSlot, int32(eventlog.SlotOf(topic)))
		dst = bsoncore.AppendInt64Element(dst, FieldGeneration, generation)
		dst = bsoncore.AppendInt64Element(dst, FieldBytes, int64(r.Size()))
	}
	if n := len(dst) - int(start); n >= MaxBytes {
		return dst[:start], fmt.Errorf("event %q takes %d bytes as a document; MongoDB takes at most %d", r.ID, n+1, MaxBytes)
	}
	return closeDocument(dst, start), nil
}

func appendID(dst []byte, prefix, id string) []byte {
	at, dst := bsoncore.ReserveLength(bsoncore.AppendHeader(dst, bsoncore.TypeString, FieldID))
	dst = append(dst, prefix...)
	dst = append(dst, id...)
	return closeString(dst, at)
}

func appendOptional(dst []byte, key, s string) []byte {
	if s == "" {
		return dst
	}
	return bsoncore.AppendStringElement(dst, key, s)
}

func appendList(dst []byte, key string, list []string) []byte {
	if len(list) == 0 {
		return dst
	}
	start, dst := bsoncore.AppendArrayElementStart(dst, key)
	for i, s := range list {
		dst = appendIndex(dst, bsoncore.TypeString, i)
		dst = bsoncore.AppendString(dst, s)
	}
	return closeDocument(dst, start)
}

func appendHeaders(dst []byte, headers wire.Headers) []byte {
	switch {
	case len(headers) == 0:
		return dst
	case !asDocument(headers):
		return appendHeadersList(dst, headers)
	}
	start, dst := bsoncore.AppendDocumentElementStart(dst, FieldHeaders)
	for i := range headers {
		dst = bsoncore.AppendStringElement(dst, headers[i].Name, headers[i].Value)
	}
	return closeDocument(dst, start)
}

// asDocument reports whether every header's name can name a BSON element.
func asDocument(headers wire.Headers) bool {
	for i := range headers {
		name := headers[i].Name
		if name == "" || name[0] == '$' || strings.ContainsAny(name, ".\x00") || name == FieldID {
			return false
		}
		for j := range i {
			if headers[j].Name == name {
				return false
			}
		}
	}
	return true
}

func appendHeadersList(dst []byte, headers wire.Headers) []byte {
	list, dst := bsoncore.AppendArrayElementStart(dst, FieldHeadersList)
	for i := range headers {
		var start int32
		start, dst = bsoncore.ReserveLength(appendIndex(dst, bsoncore.TypeEmbeddedDocument, i))
		dst = bsoncore.AppendStringElement(dst, headerName, headers[i].Name)
		dst = bsoncore.AppendStringElement(dst, headerValue, headers[i].Value)
		dst = closeDocument(dst, start)
	}
	return closeDocument(dst, list)
}

// The fields of an entry of headers_list.
const (
	headerName  = "name"
	headerValue = "value"
)

func appendPayload(dst []byte, e *wire.Event) []byte {
	if e.Binary {
		return bsoncore.AppendBinaryElement(dst, FieldPayloadBytes, bson.TypeBinaryGeneric, e.Payload)
	}
	start := len(dst)
	dst, exact := appendValue(dst, FieldPayload, e.Payload)
	if exact {
		return dst
	}
	return bsoncore.AppendBinaryElement(dst[:start], FieldPayloadJSON, bson.TypeBinaryGeneric, e.Payload)
}
