package document

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Stored is the content of a document.
type Stored struct {
	// Record is the event; that of a stub has no payload.
	Record *eventlog.Record
	Hash   []byte // what Hash returned for the event; nil if there is none
	// Gone says that this is the stub of an event that retention removed, or that it has no place
	// in a partition.
	Gone bool
}

// Cancelled says that this is the stub of a scheduled event that was cancelled.
func (s *Stored) Cancelled() bool { return s.Record.Partition == Unplaced && s.Record.DeliverAt == 0 }

// Error says what is wrong with a document: its _id and the field.
type Error struct{ error }

var (
	errMissing   = errors.New("it is missing")
	errNotString = errors.New("it is not a string")
	errNotNumber = errors.New("it is not a whole number")
)

// Decode reads a document. The result keeps nothing of raw. An error is an *Error.
func Decode(raw []byte) (Stored, error) {
	var d decoder
	if !d.collect(raw) {
		return Stored{}, &Error{fmt.Errorf("event document %s is not valid BSON", d.name())}
	}
	s := d.stored()
	if d.err != nil {
		return Stored{}, &Error{d.err}
	}
	return s, nil
}

// decoder reads one field after the other and keeps the first error.
type decoder struct {
	id, topic, partition, seq, ts, accepted, eventID bsoncore.Value
	key, sid, ttl, tags, causedBy                    bsoncore.Value
	headers, headersList                             bsoncore.Value
	payload, payloadJSON, payloadBytes               bsoncore.Value
	hash, gone, deliverAt                            bsoncore.Value

	arena strings.Builder // holds all strings of the record
	err   error
}

// collect finds the fields.
func (d *decoder) collect(raw []byte) bool {
	it, ok := elementsOf(raw)
	for ok && it.more() {
		var name []byte
		var v bsoncore.Value
		if name, v, ok = it.next(); !ok {
			break
		}
		if slot := d.slot(name); slot != nil && v.Type != bsoncore.TypeNull {
			*slot = v
		} else if string(name) == FieldPayload {
			d.payload = v // null is a payload
		}
	}
	return ok
}

func (d *decoder) slot(name []byte) *bsoncore.Value {
	switch string(name) {
	case FieldID:
		return &d.id
	case FieldTopic:
		return &d.topic
	case FieldPartition:
		return &d.partition
	case FieldSeq:
		return &d.seq
	case FieldTS:
		return &d.ts
	case FieldAccepted:
		return &d.accepted
	case FieldEventID:
		return &d.eventID
	case FieldKey:
		return &d.key
	case FieldSID:
		return &d.sid
	case FieldTTL:
		return &d.ttl
	case FieldTags:
		return &d.tags
	case FieldCausedBy:
		return &d.causedBy
	case FieldHeaders:
		return &d.headers
	case FieldHeadersList:
		return &d.headersList
	case FieldPayload:
		return &d.payload
	case FieldPayloadJSON:
		return &d.payloadJSON
	case FieldPayloadBytes:
		return &d.payloadBytes
	case FieldHash:
		return &d.hash
	case FieldGone:
		return &d.gone
	case FieldDeliverAt:
		return &d.deliverAt
	}
	return nil
}

func (d *decoder) stored() Stored {
	size := 0
	for _, v := range []*bsoncore.Value{&d.topic, &d.eventID, &d.key, &d.sid, &d.tags, &d.causedBy, &d.headers, &d.headersList} {
		size += len(v.Data)
	}
	d.arena.Grow(size)
	s := Stored{Record: new(eventlog.Record)}
	s.Gone, _ = d.gone.BooleanOK()
	s.Hash = d.binary(FieldHash, &d.hash)
	r := s.Record
	r.Topic = d.text(FieldTopic, d.required(FieldTopic, &d.topic))
	r.ID = d.text(FieldEventID, d.required(FieldEventID, &d.eventID))
	least := int64(0)
	if r.DeliverAt = d.whole(FieldDeliverAt, &d.deliverAt, 0); s.Gone {
		least = Unplaced
	}
	r.Partition = int(d.whole(FieldPartition, d.required(FieldPartition, &d.partition), least))
	r.Seq = uint64(d.whole(FieldSeq, d.required(FieldSeq, &d.seq), 0))
	r.TS = d.whole(FieldTS, d.required(FieldTS, &d.ts), 0)
	r.AcceptedAt = d.whole(FieldAccepted, d.required(FieldAccepted, &d.accepted), 0)
	r.Key = d.text(FieldKey, &d.key)
	r.SID = d.text(FieldSID, &d.sid)
	r.TTLMS = d.whole(FieldTTL, &d.ttl, 0)
	r.Tags = d.list(FieldTags, &d.tags)
	r.CausedBy = d.list(FieldCausedBy, &d.causedBy)
	r.Headers = d.readHeaders()
	if !s.Gone {
		d.readPayload(&r.Event)
	}
	return s
}

// fail keeps the first error.
func (d *decoder) fail(field string, err error) {
	if d.err == nil {
		d.err = fmt.Errorf("event document %s: field %s: %w", d.name(), field, err)
	}
}

// name is the document's _id for a message.
func (d *decoder) name() string {
	switch text, ok := stringBytes(d.id); {
	case d.id.Type == 0:
		return "without _id"
	case ok && d.id.Type == bsoncore.TypeString:
		return fmt.Sprintf("%q", text)
	}
	return "whose _id is no string"
}

func (d *decoder) required(field string, v *bsoncore.Value) *bsoncore.Value {
	if v.Type == 0 {
		d.fail(field, errMissing)
	}
	return v
}

// text reads a string; absent is "".
func (d *decoder) text(field string, v *bsoncore.Value) string {
	if v.Type == 0 {
		return ""
	}
	text, ok := stringBytes(*v)
	if !ok || v.Type != bsoncore.TypeString {
		d.fail(field, errNotString)
		return ""
	}
	return d.keep(text)
}

// keep copies a text into the arena.
func (d *decoder) keep(text []byte) string {
	start := d.arena.Len()
	d.arena.Write(text)
	return d.arena.String()[start:]
}

// whole reads a whole number of least or more, of any numeric type, since people's tools turn one
// into another; absent is 0.
func (d *decoder) whole(field string, v *bsoncore.Value, least int64) int64 {
	if v.Type == 0 {
		return 0
	}
	n, ok := v.AsInt64OK()
	if f, double := v.DoubleOK(); double && (f != math.Trunc(f) || math.Abs(f) > wire.MaxTS) {
		ok = false
	}
	if !ok || n < least {
		d.fail(field, errNotNumber)
		return 0
	}
	return n
}

func (d *decoder) binary(field string, v *bsoncore.Value) []byte {
	if v.Type == 0 {
		return nil
	}
	_, b, ok := v.BinaryOK()
	if !ok {
		d.fail(field, errors.New("it is not binary"))
		return nil
	}
	return bytes.Clone(b)
}

// each walks over a document or an array.
func (d *decoder) each(field string, v *bsoncore.Value, want bsoncore.Type, visit func(name []byte, v *bsoncore.Value)) {
	if v.Type != want {
		d.fail(field, fmt.Errorf("it is of type %s, not %s", v.Type, want))
		return
	}
	it, ok := elementsOf(v.Data)
	for ok && it.more() {
		var name []byte
		var inner bsoncore.Value
		if name, inner, ok = it.next(); ok {
			visit(name, &inner)
		}
	}
	if !ok {
		d.fail(field, errBroken)
	}
}

func (d *decoder) list(field string, v *bsoncore.Value) (list []string) {
	if v.Type != 0 {
		d.each(field, v, bsoncore.TypeArray, func(_ []byte, v *bsoncore.Value) { list = append(list, d.text(field, v)) })
	}
	return list
}

func (d *decoder) readHeaders() (headers wire.Headers) {
	if v := &d.headers; v.Type != 0 {
		d.each(FieldHeaders, v, bsoncore.TypeEmbeddedDocument, func(name []byte, v *bsoncore.Value) {
			headers = append(headers, wire.Header{Name: d.keep(name), Value: d.text(FieldHeaders, v)})
		})
	}
	if v := &d.headersList; v.Type != 0 {
		d.each(FieldHeadersList, v, bsoncore.TypeArray, func(_ []byte, v *bsoncore.Value) {
			headers = append(headers, d.readHeader(v))
		})
	}
	return headers
}

// readHeader reads an entry of headers_list.
func (d *decoder) readHeader(v *bsoncore.Value) (h wire.Header) {
	d.each(FieldHeadersList, v, bsoncore.TypeEmbeddedDocument, func(name []byte, v *bsoncore.Value) {
		switch string(name) {
		case headerName:
			h.Name = d.text(FieldHeadersList, v)
		case headerValue:
			h.Value = d.text(FieldHeadersList, v)
		}
	})
	return h
}

func (d *decoder) readPayload(e *wire.Event) {
	switch {
	case d.payloadBytes.Type != 0:
		e.Payload, e.Binary = d.binary(FieldPayloadBytes, &d.payloadBytes), true
	case d.payloadJSON.Type != 0:
		e.Payload = d.binary(FieldPayloadJSON, &d.payloadJSON)
	case d.payload.Type != 0:
		var err error
		if e.Payload, err = jsonOf(d.payload); err != nil {
			d.fail(FieldPayload, err)
		}
	default:
		d.fail(FieldPayload, errMissing)
	}
}
