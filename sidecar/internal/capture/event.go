package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// The headers of every event: a delete has no payload that could have the operation.
const (
	headerOp = wire.HeaderCaptureAll + "op" // insert, update, replace, delete or snapshot
	headerNS = wire.HeaderCaptureAll + "ns" // database.collection
)

// The operations of events. Those of a change stream are called as the server calls them.
const (
	opInsert   = "insert"
	opUpdate   = "update"
	opReplace  = "replace"
	opDelete   = "delete"
	opSnapshot = "snapshot" // a document of a re-read
)

// change is a change in a change stream.
type change struct {
	Token       bson.Raw       `bson:"_id"`
	Op          string         `bson:"operationType"`
	ClusterTime bson.Timestamp `bson:"clusterTime"`
	WallTime    time.Time      `bson:"wallTime"` // since MongoDB 6.0
	Key         struct {
		ID bson.RawValue `bson:"_id"`
	} `bson:"documentKey"`
	Document bson.RawValue `bson:"fullDocument"` // null in an update whose document is gone by now
}

// at is when the change was made.
func (c *change) at() time.Time {
	if !c.WallTime.IsZero() {
		return c.WallTime
	}
	return time.Unix(int64(c.ClusterTime.T), 0)
}

// item makes the event of a change; that of a delete is a tombstone. The item's Err says why the
// change cannot be an event.
func (s Source) item(id, op string, at time.Time, key, document bson.RawValue, lim wire.Limits) wire.PublishItem {
	it := wire.PublishItem{HasTS: true, Event: wire.Event{
		ID: id, TS: max(at.UnixMilli(), 0), Topic: s.Topic,
		Headers: wire.Headers{{Name: headerNS, Value: s.Namespace()}, {Name: headerOp, Value: op}},
	}}
	ev := &it.Event
	var err error
	if ev.Key, err = keyOf(key); err != nil {
		it.Err = wire.Errorf(wire.BadRequest, "the _id cannot be written as JSON: %v", err)
		return it
	}
	if it.Err = codec.CheckKey(ev.Key, lim); it.Err != nil {
		return it
	}
	ev.Payload = []byte("null")
	if op != opDelete {
		ev.Payload, it.Err = s.payload(op, key, document, lim)
	}
	return it
}

func (s Source) payload(op string, key, document bson.RawValue, lim wire.Limits) ([]byte, *wire.Error) {
	id, err := extended(key)
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "the _id cannot be written as JSON: %v", err)
	}
	doc := []byte("null")
	if document.Type != 0 {
		if doc, err = extended(document); err != nil {
			return nil, wire.Errorf(wire.BadRequest, "the document cannot be written as JSON: %v", err)
		}
	}
	text := append(make([]byte, 0, len(doc)+len(id)+100), `{"op":"`+op+`","ns":`...)
	text = append(append(codec.AppendString(text, s.Namespace()), `,"key":`...), id...)
	text = append(append(append(text, `,"document":`...), doc...), '}')
	return codec.CompactPayload(text, lim)
}

// keyOf is the event's key: an ObjectId in hexadecimal digits, a string as it is, and any other
// value in MongoDB's extended JSON, as well as the empty string, which is no key.
func keyOf(id bson.RawValue) (string, error) {
	switch id.Type {
	case bson.TypeObjectID:
		return id.ObjectID().Hex(), nil
	case bson.TypeString:
		if text := id.StringValue(); text != "" {
			return text, nil
		}
	}
	text, err := extended(id)
	return string(text), err
}

// extended is a value in MongoDB's relaxed extended JSON.
func extended(v bson.RawValue) ([]byte, error) {
	text, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: v}}, false, false)
	if err != nil {
		return nil, err
	}
	return text[len(`{"v":`) : len(text)-len(`}`)], nil
}

// digest is an event's id: the digest of a change's token, or of a re-read's token and the
// document's _id.
func digest(kind string, parts ...[]byte) string {
	h := sha256.New()
	h.Write([]byte(kind))
	for _, p := range parts {
		h.Write([]byte{0})
		h.Write(p)
	}
	const size = 16 // bytes: two of 10^12 changes are the same with a chance of 10^-15
	return hex.EncodeToString(h.Sum(nil)[:size])
}
