package outbox

import (
	"bytes"
	"math"
	"strconv"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// The fields of a document. The application writes the first group, and status "pending"; the
// drainer changes only the second group.
const (
	fieldID       = "_id"
	fieldEventID  = "id"
	fieldTopic    = "topic"
	fieldKey      = "key"
	fieldHeaders  = "headers"
	fieldTags     = "tags"
	fieldCausedBy = "caused_by"
	fieldPayload  = "payload"
	fieldTS       = "ts"
	fieldSID      = "sid"
	fieldTTL      = "ttl_ms"

	fieldPayloadJSON   = "payload_json"
	fieldPayloadBinary = "payload_binary"
	fieldDeliverAt     = "deliver_at"
	fieldAfter         = "after"

	fieldStatus    = "status"
	fieldDoneAt    = "done_at"
	fieldSeq       = "seq"
	fieldPartition = "partition"
	fieldError     = "error"
	fieldAttempts  = "attempts"
	fieldFailedAt  = "failed_at"
)

// The values of status.
const (
	statusPending = "pending"
	statusDone    = "done"
	statusError   = "error"
)

// entry is one document on its way.
type entry struct {
	id       bson.RawValue // _id
	topic    string        // "" if the document has none
	chain    string        // of documents that keep their order; without a key only this one
	after    bson.RawValue // the _id of the document before it in its chain; zero: not given
	shard    int
	attempts int              // failed tries so far
	item     wire.PublishItem // empty until read
	size     int
}

// newEntry reads the fields that place a document. The result keeps nothing of doc.
func newEntry(doc bson.Raw) *entry {
	r := fieldReader{doc: doc}
	e := &entry{id: clone(r.get(fieldID)), after: clone(r.get(fieldAfter))}
	e.topic, _ = r.get(fieldTopic).StringValueOK()
	key, _ := r.get(fieldKey).StringValueOK()
	if key != "" {
		e.chain = e.topic + "\x00" + key
	} else {
		e.chain = "\x00" + string(e.id.Value)
		if key = r.eventID(); r.err != nil {
			key = string(e.id.Value)
		}
	}
	e.shard = shardOf(e.topic, key)
	return e
}

func clone(v bson.RawValue) bson.RawValue {
	return bson.RawValue{Type: v.Type, Value: bytes.Clone(v.Value)}
}

// readWhole reads the event, too. The item's Err has its error.
func (e *entry) readWhole(doc bson.Raw, lim wire.Limits) {
	r := fieldReader{doc: doc, lim: lim}
	attempts, _ := r.get(fieldAttempts).AsInt64OK()
	e.attempts = int(attempts)
	if e.item = r.item(); r.err != nil {
		e.item = wire.PublishItem{Err: r.err}
	}
	e.size = e.item.Event.Size()
}

// rawID identifies a document.
func (e *entry) rawID() string { return rawID(e.id) }

func rawID(v bson.RawValue) string { return string(rune(v.Type)) + string(v.Value) }

// fieldReader reads the fields of a document, and keeps the first error.
type fieldReader struct {
	doc bson.Raw
	lim wire.Limits
	err *wire.Error
}

// get is the zero value if the document does not have the field. Null counts as absent, except for
// the payload.
func (r *fieldReader) get(field string) bson.RawValue {
	v := r.doc.Lookup(field)
	if v.Type == bson.TypeNull && field != fieldPayload {
		return bson.RawValue{}
	}
	return v
}

func (r *fieldReader) check(err *wire.Error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *fieldReader) fail(format string, args ...any) {
	r.check(wire.Errorf(wire.BadRequest, format, args...))
}

// item reads the event, and checks it as the gateway checks events of its clients.
func (r *fieldReader) item() (it wire.PublishItem) {
	ev := &it.Event
	ev.Topic = r.text(fieldTopic, r.get(fieldTopic))
	r.check(codec.CheckTopic(ev.Topic))
	ev.ID = r.eventID()
	r.check(codec.CheckID(ev.ID))
	ev.Key = r.text(fieldKey, r.get(fieldKey))
	r.check(codec.CheckKey(ev.Key, r.lim))
	ev.Headers = r.headers()
	ev.Tags = r.texts(fieldTags, checkTag)
	ev.CausedBy = r.texts(fieldCausedBy, codec.CheckID)
	if ev.SID = r.text(fieldSID, r.get(fieldSID)); len(ev.SID) > wire.MaxSIDBytes {
		r.fail("sid is %d bytes long; at most %d are allowed", len(ev.SID), wire.MaxSIDBytes)
	}
	ev.TS, it.HasTS = r.millis(fieldTS)
	if at, later := r.millis(fieldDeliverAt); later { // ts then only orders documents
		it.Later.DeliverAt, ev.TS, it.HasTS = &at, 0, false
	}
	if v := r.get(fieldTTL); v.Type != 0 {
		var ok bool
		if ev.TTLMS, ok = whole(v); !ok || ev.TTLMS < 1 || ev.TTLMS > wire.MaxTTLMS {
			r.fail("ttl_ms must be a whole number from 1 to %d", int64(wire.MaxTTLMS))
		}
	}
	ev.Payload, ev.Binary = r.content()
	return it
}

// content reads the payload, which may be in one of three fields.
func (r *fieldReader) content() (content []byte, binary bool) {
	value, text, data := r.get(fieldPayload), r.get(fieldPayloadJSON), r.get(fieldPayloadBinary)
	var err *wire.Error
	switch {
	case value.Type != 0 && text.Type != 0, value.Type != 0 && data.Type != 0, text.Type != 0 && data.Type != 0:
		r.fail("give one of payload, payload_json and payload_binary")
	case text.Type != 0:
		content, err = codec.CompactPayload([]byte(r.text(fieldPayloadJSON, text)), r.lim)
	case data.Type != 0:
		_, b, ok := data.BinaryOK()
		if !ok {
			r.fail("payload_binary must be binary, not a value of type %s", data.Type)
		}
		content, binary, err = bytes.Clone(b), true, codec.CheckPayloadBytes(b, r.lim)
	case value.Type == 0:
		r.fail("payload is missing: give payload, payload_json or payload_binary; null is allowed")
	default:
		json, f := appendJSON(make([]byte, 0, len(value.Value)+64), value, 0)
		if f != nil {
			r.fail("payload%s %s", f.path, f.msg)
			break
		}
		content, err = codec.CompactPayload(json, r.lim)
	}
	r.check(err)
	return content, binary
}

// eventID is the event's id: the field id, else _id.
func (r *fieldReader) eventID() string {
	field := fieldEventID
	v := r.get(field)
	if v.Type == 0 {
		field = fieldID
		v = r.get(field)
	}
	switch v.Type {
	case bson.TypeString:
		return v.StringValue()
	case bson.TypeObjectID:
		return v.ObjectID().Hex()
	case bson.TypeBinary:
		if subtype, data := v.Binary(); subtype == bson.TypeBinaryUUID && len(data) == len(uuid.UUID{}) {
			return uuid.UUID(data).String()
		}
	default:
		if n, ok := whole(v); ok {
			return strconv.FormatInt(n, 10)
		}
	}
	r.fail("%s must be a string, an ObjectId, a UUID (binary of subtype 4) or a whole number to serve as the event's id", field)
	return ""
}

// text reads a string; absent is "".
func (r *fieldReader) text(field string, v bson.RawValue) string {
	s, ok := v.StringValueOK()
	if !ok && v.Type != 0 {
		r.fail("%s must be a string, not a value of type %s", field, v.Type)
	}
	return s
}

func (r *fieldReader) headers() (list wire.Headers) {
	v := r.get(fieldHeaders)
	doc, ok := v.DocumentOK()
	if !ok && v.Type != 0 {
		r.fail("headers must be a document of strings, not a value of type %s", v.Type)
	}
	elements, err := doc.Elements()
	if err != nil && ok {
		r.fail("headers is not valid BSON")
	}
	for _, e := range elements {
		list = append(list, wire.Header{Name: e.Key(), Value: r.text("headers."+e.Key(), e.Value())})
	}
	list, bad := codec.PublisherHeaders(list, r.lim)
	r.check(bad)
	return list
}

// texts reads an array of strings.
func (r *fieldReader) texts(field string, check func(string) *wire.Error) (list []string) {
	v := r.get(field)
	array, ok := v.ArrayOK()
	if !ok {
		if v.Type != 0 {
			r.fail("%s must be an array of strings, not a value of type %s", field, v.Type)
		}
		return nil
	}
	values, err := array.Values()
	switch {
	case err != nil:
		r.fail("%s is not valid BSON", field)
	case len(values) > wire.MaxTags:
		r.fail("%s has %d entries; at most %d are allowed", field, len(values), wire.MaxTags)
		return nil
	}
	for i, v := range values {
		name := field + "." + strconv.Itoa(i)
		s := r.text(name, v)
		if err := check(s); err != nil {
			r.fail("%s: %s", name, err.Msg)
		}
		list = append(list, s)
	}
	return list
}

func checkTag(s string) *wire.Error {
	if len(s) > wire.MaxTagBytes {
		return wire.Errorf(wire.BadRequest, "a tag is %d bytes long; at most %d are allowed", len(s), wire.MaxTagBytes)
	}
	return nil
}

// millis reads a time: milliseconds since the epoch, or a date.
func (r *fieldReader) millis(field string) (ts int64, has bool) {
	v := r.get(field)
	if v.Type == 0 {
		return 0, false
	}
	ts, ok := v.DateTimeOK()
	if !ok {
		ts, ok = whole(v)
	}
	const allowed = "; a date or a whole number of milliseconds from 0 to %d is allowed"
	f, isFloat := v.DoubleOK()
	switch {
	case !ok && isFloat:
		r.fail("%s is %v"+allowed, field, f, int64(wire.MaxTS))
	case !ok:
		r.fail("%s must be a date or a whole number of milliseconds, not a value of type %s", field, v.Type)
	case ts < 0 || ts > wire.MaxTS:
		r.fail("%s is %d"+allowed, field, ts, int64(wire.MaxTS))
	}
	return ts, true
}

// whole reads a whole number.
func whole(v bson.RawValue) (n int64, ok bool) {
	if f, is := v.DoubleOK(); is && (f != math.Trunc(f) || math.Abs(f) > wire.MaxTS) {
		return 0, false
	}
	return v.AsInt64OK()
}
