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

// The fields of a document. The application writes those of the first group,
// and status "pending"; the drainer changes those of the second alone.
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

	// Fields that other drainers, or people, may have left on a claimed document.
	fieldLeaseUntil = "lease_until"
	fieldOwner      = "owner"
)

// The values of status.
const (
	statusPending = "pending"
	statusClaimed = "claimed"
	statusDone    = "done"
	statusError   = "error"
)

// entry is one document on its way.
type entry struct {
	id       bson.RawValue // _id
	topic    string        // "" if the document has none
	chain    string        // documents of one chain keep their order; without a key it is one of its own
	after    bson.RawValue // the _id of the document before it in its chain; zero: it does not say
	shard    int
	attempts int              // failed ones so far
	item     wire.PublishItem // empty until read
	size     int
}

// fields are a document's elements that count. The zero value of one means
// that it is not there.
type fields struct {
	id, eventID, topic, key, headers, tags, causedBy, payload, ts, attempts bson.RawValue
	payloadJSON, payloadBinary, sid, ttl, deliverAt, after                  bson.RawValue
}

// collect finds the fields. Null is as good as absent, other than for the
// payload.
func collect(doc bson.Raw) fields {
	var f fields
	elements, _ := doc.Elements() // what is broken came from no server
	for _, e := range elements {
		v := e.Value()
		slot := f.slot(e.Key())
		if slot == nil || v.Type == bson.TypeNull && slot != &f.payload {
			continue
		}
		*slot = v
	}
	return f
}

func (f *fields) slot(name string) *bson.RawValue {
	switch name {
	case fieldID:
		return &f.id
	case fieldEventID:
		return &f.eventID
	case fieldTopic:
		return &f.topic
	case fieldKey:
		return &f.key
	case fieldHeaders:
		return &f.headers
	case fieldTags:
		return &f.tags
	case fieldCausedBy:
		return &f.causedBy
	case fieldPayload:
		return &f.payload
	case fieldTS:
		return &f.ts
	case fieldAttempts:
		return &f.attempts
	case fieldPayloadJSON:
		return &f.payloadJSON
	case fieldPayloadBinary:
		return &f.payloadBinary
	case fieldSID:
		return &f.sid
	case fieldTTL:
		return &f.ttl
	case fieldDeliverAt:
		return &f.deliverAt
	case fieldAfter:
		return &f.after
	}
	return nil
}

// newEntry reads what says where a document belongs. The result keeps nothing
// of doc.
func newEntry(doc bson.Raw) *entry {
	f := collect(doc)
	return f.entry()
}

func (f *fields) entry() *entry {
	e := &entry{id: clone(f.id), after: clone(f.after)}
	e.topic, _ = f.topic.StringValueOK()
	key, _ := f.key.StringValueOK()
	if key != "" {
		e.chain = e.topic + "\x00" + key
	} else {
		e.chain = "\x00" + string(e.id.Value)
		if id, err := f.eventIDText(); err == nil {
			key = id
		} else {
			key = string(f.id.Value)
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
	f := collect(doc)
	e.attempts = int(wholeOf(f.attempts))
	e.item = wire.PublishItem{}
	if err := f.event(&e.item, lim); err != nil {
		e.item = wire.PublishItem{Err: err}
	}
	e.size = e.item.Event.Size()
}

// rawID tells documents apart.
func (e *entry) rawID() string { return rawID(e.id) }

func rawID(v bson.RawValue) string { return string(rune(v.Type)) + string(v.Value) }

// event reads the event, and checks it as the gateway checks events of its clients.
func (f *fields) event(it *wire.PublishItem, lim wire.Limits) (err *wire.Error) {
	ev := &it.Event
	if ev.Topic, err = text(fieldTopic, f.topic); err != nil {
		return err
	}
	if err = codec.CheckTopic(ev.Topic); err != nil {
		return err
	}
	if ev.ID, err = f.eventIDText(); err != nil {
		return err
	}
	if err = codec.CheckID(ev.ID); err != nil {
		return err
	}
	if ev.Key, err = text(fieldKey, f.key); err != nil {
		return err
	}
	if err = codec.CheckKey(ev.Key, lim); err != nil {
		return err
	}
	if ev.Headers, err = headers(f.headers, lim); err != nil {
		return err
	}
	if ev.Tags, err = texts(fieldTags, f.tags, checkTag); err != nil {
		return err
	}
	if ev.CausedBy, err = texts(fieldCausedBy, f.causedBy, codec.CheckID); err != nil {
		return err
	}
	if ev.SID, err = text(fieldSID, f.sid); err != nil {
		return err
	}
	if len(ev.SID) > wire.MaxSIDBytes {
		return wire.Errorf(wire.BadRequest, "sid is %d bytes long; at most %d are allowed", len(ev.SID), wire.MaxSIDBytes)
	}
	if err = f.times(it); err != nil {
		return err
	}
	ev.Payload, ev.Binary, err = f.content(lim)
	return err
}

// times reads the fields that are times. With deliver_at the ts orders
// documents, and is not the event's.
func (f *fields) times(it *wire.PublishItem) (err *wire.Error) {
	ev := &it.Event
	if ev.TS, it.HasTS, err = millis(fieldTS, f.ts); err != nil {
		return err
	}
	switch at, later, err := millis(fieldDeliverAt, f.deliverAt); {
	case err != nil:
		return err
	case later:
		it.Later.DeliverAt, ev.TS, it.HasTS = &at, 0, false
	}
	if f.ttl.Type == 0 {
		return nil
	}
	n, ok := whole(f.ttl)
	if !ok || n < 1 || n > wire.MaxTTLMS {
		return wire.Errorf(wire.BadRequest, "ttl_ms must be a whole number from 1 to %d", int64(wire.MaxTTLMS))
	}
	ev.TTLMS = n
	return nil
}

// content reads the payload, which may be in one of three fields.
func (f *fields) content(lim wire.Limits) (content []byte, binary bool, err *wire.Error) {
	given := 0
	for _, v := range []bson.RawValue{f.payload, f.payloadJSON, f.payloadBinary} {
		if v.Type != 0 {
			given++
		}
	}
	if given > 1 {
		return nil, false, wire.Errorf(wire.BadRequest, "give one of payload, payload_json and payload_binary")
	}
	switch {
	case f.payloadJSON.Type != 0:
		s, err := text(fieldPayloadJSON, f.payloadJSON)
		if err != nil {
			return nil, false, err
		}
		content, err = codec.CompactPayload([]byte(s), lim)
		return content, false, err
	case f.payloadBinary.Type != 0:
		_, data, ok := f.payloadBinary.BinaryOK()
		if !ok {
			return nil, false, wire.Errorf(wire.BadRequest, "payload_binary must be binary, not a value of type %s", f.payloadBinary.Type)
		}
		return bytes.Clone(data), true, codec.CheckPayloadBytes(data, lim)
	}
	content, err = payload(f.payload, lim)
	return content, false, err
}

// eventIDText is the event's id: the field id, else _id.
func (f *fields) eventIDText() (string, *wire.Error) {
	name, v := fieldEventID, f.eventID
	if v.Type == 0 {
		name, v = fieldID, f.id
	}
	switch v.Type {
	case bson.TypeString:
		return v.StringValue(), nil
	case bson.TypeObjectID:
		return v.ObjectID().Hex(), nil
	case bson.TypeInt32:
		return strconv.Itoa(int(v.Int32())), nil
	case bson.TypeInt64:
		return strconv.FormatInt(v.Int64(), 10), nil
	case bson.TypeDouble:
		if n := v.Double(); n == math.Trunc(n) && math.Abs(n) <= wire.MaxTS {
			return strconv.FormatInt(int64(n), 10), nil
		}
	case bson.TypeBinary:
		if subtype, data := v.Binary(); subtype == bson.TypeBinaryUUID && len(data) == len(uuid.UUID{}) {
			return uuid.UUID(data).String(), nil
		}
	}
	return "", wire.Errorf(wire.BadRequest,
		"%s must be a string, an ObjectId, a UUID (binary of subtype 4) or a whole number to serve as the event's id", name)
}

// text reads a string; absent is "".
func text(field string, v bson.RawValue) (string, *wire.Error) {
	if v.Type == 0 {
		return "", nil
	}
	s, ok := v.StringValueOK()
	if !ok {
		return "", wire.Errorf(wire.BadRequest, "%s must be a string, not a value of type %s", field, v.Type)
	}
	return s, nil
}

func headers(v bson.RawValue, lim wire.Limits) (wire.Headers, *wire.Error) {
	if v.Type == 0 {
		return nil, nil
	}
	doc, ok := v.DocumentOK()
	if !ok {
		return nil, wire.Errorf(wire.BadRequest, "headers must be a document of strings, not a value of type %s", v.Type)
	}
	elements, err := doc.Elements()
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "headers is not valid BSON")
	}
	var list wire.Headers
	for _, e := range elements {
		value, err := text("headers."+e.Key(), e.Value())
		if err != nil {
			return nil, err
		}
		list = append(list, wire.Header{Name: e.Key(), Value: value})
	}
	return list, codec.CheckHeaders(list, lim)
}

// texts reads an array of strings.
func texts(field string, v bson.RawValue, check func(string) *wire.Error) ([]string, *wire.Error) {
	if v.Type == 0 {
		return nil, nil
	}
	array, ok := v.ArrayOK()
	if !ok {
		return nil, wire.Errorf(wire.BadRequest, "%s must be an array of strings, not a value of type %s", field, v.Type)
	}
	values, err := array.Values()
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "%s is not valid BSON", field)
	}
	if len(values) > wire.MaxTags {
		return nil, wire.Errorf(wire.BadRequest, "%s has %d entries; at most %d are allowed", field, len(values), wire.MaxTags)
	}
	var list []string
	for i, v := range values {
		name := field + "." + strconv.Itoa(i)
		s, ok := v.StringValueOK()
		if !ok {
			return nil, wire.Errorf(wire.BadRequest, "%s must be a string, not a value of type %s", name, v.Type)
		}
		if err := check(s); err != nil {
			return nil, wire.Errorf(err.Code, "%s: %s", name, err.Msg)
		}
		list = append(list, s)
	}
	return list, nil
}

func checkTag(s string) *wire.Error {
	if len(s) > wire.MaxTagBytes {
		return wire.Errorf(wire.BadRequest, "a tag is %d bytes long; at most %d are allowed", len(s), wire.MaxTagBytes)
	}
	return nil
}

// millis reads a time: milliseconds since the epoch, or a date.
func millis(field string, v bson.RawValue) (ts int64, has bool, err *wire.Error) {
	ok := true
	switch v.Type {
	case 0:
		return 0, false, nil
	case bson.TypeDateTime:
		ts = v.DateTime()
	default:
		ts, ok = whole(v)
	}
	switch {
	case !ok && v.Type != bson.TypeDouble:
		return 0, false, wire.Errorf(wire.BadRequest, "%s must be a date or a whole number of milliseconds, not a value of type %s", field, v.Type)
	case !ok:
		return 0, false, wire.Errorf(wire.BadRequest, "%s is %v; a date or a whole number of milliseconds from 0 to %d is allowed", field, v.Double(), int64(wire.MaxTS))
	case ts < 0 || ts > wire.MaxTS:
		return 0, false, wire.Errorf(wire.BadRequest, "%s is %d; a date or a whole number of milliseconds from 0 to %d is allowed", field, ts, int64(wire.MaxTS))
	}
	return ts, true, nil
}

// whole reads a whole number.
func whole(v bson.RawValue) (n int64, ok bool) {
	if f, is := v.DoubleOK(); is && (f != math.Trunc(f) || math.Abs(f) > wire.MaxTS) {
		return 0, false
	}
	return v.AsInt64OK()
}

// wholeOf is a number without its fraction, and 0 for what is none.
func wholeOf(v bson.RawValue) int64 {
	n, _ := v.AsInt64OK()
	return n
}

func payload(v bson.RawValue, lim wire.Limits) ([]byte, *wire.Error) {
	if v.Type == 0 {
		return nil, wire.Errorf(wire.BadRequest, "payload is missing: give payload, payload_json or payload_binary; null is allowed")
	}
	text, f := appendJSON(make([]byte, 0, len(v.Value)+64), v, 0)
	if f != nil {
		return nil, wire.Errorf(wire.BadRequest, "payload%s %s", f.path, f.msg)
	}
	return codec.CompactPayload(text, lim)
}
