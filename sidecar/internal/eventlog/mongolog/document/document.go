// Package document is the event as a MongoDB document, both ways.
//
// A document's fields, in this order:
//
//	_id           string, "<topic>/<id>", see ID
//	topic         string
//	partition     int32
//	seq           int64
//	ts, accepted  int64, milliseconds since the epoch
//	id            string
//	key, sid      string; left out when empty
//	ttl_ms        int64; left out when 0
//	tags          array of strings; left out when empty
//	caused_by     array of strings; left out when empty
//	headers       document of strings; left out when empty, or
//	headers_list  array of {name, value}, where names are no BSON names
//	payload       the JSON payload as a BSON value where that is exact, or
//	payload_json  binary, else: the payload's JSON text, or
//	payload_bytes binary: a payload that is not JSON
//	hash          binary, what Hash returns
//	writer        int64, a random number of the call that wrote it
//
// People can query a BSON payload in MongoDB's shell. It is exact when it reads back with every
// member in its order, every number equal as a decimal and every string the same: see payload.go.
//
// An event that is scheduled has no place yet, see Unplaced, and is not live: it has gone (true),
// deliver_at (int64, milliseconds since the epoch), due_slot (int32) and generation (int64), too.
// Once it is cancelled, gone, _id, topic, partition, a new seq, ts, accepted, id and expireAt stay
// for a while.
//
// Of an event that retention removed a stub stays while its id is remembered: gone (true), _id,
// topic, partition, seq, ts, accepted, id, hash and expireAt (a date), some of which may be left
// out. Other fields are passed over.
package document

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The names of the fields, for queries and indexes.
const (
	FieldID           = "_id"
	FieldTopic        = "topic"
	FieldPartition    = "partition"
	FieldSeq          = "seq"
	FieldTS           = "ts"
	FieldAccepted     = "accepted"
	FieldEventID      = "id"
	FieldKey          = "key"
	FieldHeaders      = "headers"
	FieldHeadersList  = "headers_list"
	FieldTags         = "tags"
	FieldCausedBy     = "caused_by"
	FieldSID          = "sid"
	FieldTTL          = "ttl_ms"
	FieldPayload      = "payload"
	FieldPayloadJSON  = "payload_json"
	FieldPayloadBytes = "payload_bytes"
	FieldHash         = "hash"
	FieldWriter       = "writer"
	FieldGone         = "gone"
	FieldExpireAt     = "expireAt"
	FieldDeliverAt    = "deliver_at"
	FieldDueSlot      = "due_slot"
	FieldGeneration   = "generation"
	FieldBytes        = "bytes" // about the size of a scheduled event
)

// Unplaced is the partition of a scheduled event, whose seq is a number of eventlog.Acceptances.
const Unplaced = -2

// MaxBytes is the largest document that MongoDB takes.
const MaxBytes = 16 << 20

// maxValueBytes keeps the document of a payload that is larger in BSON than in JSON (an array's
// elements carry their index) under MaxBytes.
const maxValueBytes = 8 << 20

// MaxPayload is the largest payload for which every event within the other limits, and its dead
// letter, makes a document that MongoDB takes; 0 if the other limits leave no room for a payload.
func MaxPayload(lim wire.Limits) int {
	const (
		element = 48       // around a header or an entry of a list
		ours    = 32 << 10 // ids, the topic, the trace's context, and a dead letter's headers
		lists   = wire.MaxTags * (wire.MaxTagBytes + wire.MaxIDBytes + 2*element)
	)
	room := MaxBytes - ours - lists
	for _, n := range []int{lim.KeyBytes, lim.HeaderBytes, min(lim.HeaderCount, MaxBytes) * element} {
		room -= min(n, MaxBytes)
	}
	if room < maxValueBytes {
		return 0
	}
	return room
}

// ID is the _id of a topic's event. It is unique, since no topic's name holds a slash. The
// generation is 0 until the topic is deleted, and changes whenever the topic is created again, so
// ids are free then although stubs still have them.
func ID(topic string, generation int64, id string) string { return Prefix(topic, generation) + id }

// Prefix begins the _id of all events of a topic and generation. No topic's name holds a tilde
// either.
func Prefix(topic string, generation int64) string {
	if generation == 0 {
		return topic + "/"
	}
	return topic + "~" + strconv.FormatInt(generation, 10) + "/"
}

// closeDocument ends the document or array whose length is at start.
func closeDocument(dst []byte, start int32) []byte {
	dst = append(dst, 0)
	return bsoncore.UpdateLength(dst, start, int32(len(dst))-start)
}

// closeString ends the string whose length is at start. That length counts the zero byte but,
// unlike a document's, not itself.
func closeString(dst []byte, start int32) []byte {
	dst = append(dst, 0)
	return bsoncore.UpdateLength(dst, start, int32(len(dst))-start-4)
}

// appendIndex begins an array's element.
func appendIndex(dst []byte, t bsoncore.Type, i int) []byte {
	dst = append(dst, byte(t))
	dst = strconv.AppendInt(dst, int64(i), 10)
	return append(dst, 0)
}
