package outbox

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/test/require"
)

func raw(t testing.TB, doc any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(doc)
	require.NoError(t, err)
	return b
}

func read(t testing.TB, doc bson.D) *entry {
	t.Helper()
	b := raw(t, doc)
	e := newEntry(b)
	e.readWhole(b, wire.DefaultLimits())
	return e
}

var someID = bson.ObjectID{0x65, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}

func TestReadsAWholeDocument(t *testing.T) {
	e := read(t, bson.D{
		{Key: "_id", Value: someID}, {Key: "topic", Value: "orders"}, {Key: "key", Value: "k"},
		{Key: "headers", Value: bson.D{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}}},
		{Key: "tags", Value: bson.A{"eu", "us"}}, {Key: "caused_by", Value: bson.A{"c1"}},
		{Key: "payload", Value: bson.D{{Key: "z", Value: 1}, {Key: "a", Value: "x"}}},
		{Key: "ts", Value: time.UnixMilli(1723140000123)}, {Key: "status", Value: "pending"},
		{Key: "attempts", Value: 2}, {Key: "more", Value: "is passed over"},
	})
	if e.item.Err != nil {
		t.Fatal(e.item.Err)
	}
	ev := e.item.Event
	if ev.ID != someID.Hex() || ev.Topic != "orders" || ev.Key != "k" || string(ev.Payload) != `{"z":1,"a":"x"}` {
		t.Errorf("read %+v", e)
	}
	if ev.TS != 1723140000123 || !e.item.HasTS || e.attempts != 2 {
		t.Errorf("read %+v", e)
	}
	if len(ev.Headers) != 2 || ev.Headers[0] != (wire.Header{Name: "b", Value: "2"}) || len(ev.Tags) != 2 || ev.CausedBy[0] != "c1" {
		t.Errorf("read %+v", e)
	}
}

func TestReadsADocumentForLater(t *testing.T) {
	e := read(t, bson.D{
		{Key: "_id", Value: someID}, {Key: "topic", Value: "orders"}, {Key: "payload_json", Value: `{"z": 1e400, "a": 12345678901234567890}`},
		{Key: "ts", Value: time.UnixMilli(5)}, {Key: "deliver_at", Value: time.UnixMilli(1723140000123)}, {Key: "ttl_ms", Value: 60000.0},
		{Key: "sid", Value: "boot-1"}, {Key: "after", Value: "before"},
	})
	if e.item.Err != nil {
		t.Fatal(e.item.Err)
	}
	ev := e.item.Event
	if string(ev.Payload) != `{"z":1e400,"a":12345678901234567890}` || ev.SID != "boot-1" || ev.TTLMS != 60000 {
		t.Errorf("read %+v", e)
	}
	if e.after.StringValue() != "before" || e.item.HasTS || *e.item.Later.DeliverAt != 1723140000123 {
		t.Errorf("read %+v", e)
	}
	e = read(t, bson.D{{Key: "_id", Value: someID}, {Key: "topic", Value: "orders"},
		{Key: "payload_binary", Value: bson.Binary{Data: []byte{0, 255}}}})
	if ev := e.item.Event; e.item.Err != nil || !ev.Binary || string(ev.Payload) != "\x00\xff" {
		t.Errorf("read %+v", e)
	}
}

func TestEventIDs(t *testing.T) {
	for _, c := range []struct {
		doc  bson.D
		want string
	}{
		{bson.D{{Key: "_id", Value: "text"}}, "text"},
		{bson.D{{Key: "_id", Value: someID}}, someID.Hex()},
		{bson.D{{Key: "_id", Value: int32(7)}}, "7"},
		{bson.D{{Key: "_id", Value: int64(-1 << 60)}}, "-1152921504606846976"},
		{bson.D{{Key: "_id", Value: 12.0}}, "12"},
		{bson.D{{Key: "_id", Value: bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}}}, "30313233-3435-3637-3839-616263646566"},
		{bson.D{{Key: "_id", Value: someID}, {Key: "id", Value: "own"}}, "own"},
		{bson.D{{Key: "id", Value: nil}, {Key: "_id", Value: "x"}}, "x"},
	} {
		doc := append(c.doc, bson.E{Key: "topic", Value: "t"}, bson.E{Key: "payload", Value: nil})
		if e := read(t, doc); e.item.Err != nil || e.item.Event.ID != c.want {
			t.Errorf("%v: id %q (%v), not %q", c.doc, e.item.Event.ID, e.item.Err, c.want)
		}
	}
}

// The error of a bad document names the field.
func TestBadDocuments(t *testing.T) {
	good := bson.D{{Key: "_id", Value: "x"}, {Key: "topic", Value: "t"}, {Key: "payload", Value: 1}}
	with := func(name string, value any) bson.D {
		doc := bson.D{}
		for _, e := range good {
			if e.Key != name {
				doc = append(doc, e)
			}
		}
		return append(doc, bson.E{Key: name, Value: value})
	}
	for _, c := range []struct {
		doc  bson.D
		says string
		code wire.Code
	}{
		{good[:2], "payload is missing", wire.BadRequest},
		{bson.D{good[0], good[2]}, "topic is missing", wire.BadRequest},
		{with("topic", 5), "topic must be a string", wire.BadRequest},
		{with("topic", "_reserved"), "topic", wire.BadRequest},
		{with("topic", "with space"), "topic", wire.BadRequest},
		{with("key", 5), "key must be a string", wire.BadRequest},
		{with("key", strings.Repeat("k", 600)), "key is 600 bytes", wire.BadRequest},
		{with("id", ""), "id is empty", wire.BadRequest},
		{with("id", true), "id must be", wire.BadRequest},
		{with("_id", bson.D{{Key: "a", Value: 1}}), "_id must be", wire.BadRequest},
		{with("_id", 1.5), "_id must be", wire.BadRequest},
		{with("headers", "x"), "headers must be a document", wire.BadRequest},
		{with("headers", bson.D{{Key: "n", Value: 1}}), "headers.n must be a string", wire.BadRequest},
		{with("tags", "x"), "tags must be an array", wire.BadRequest},
		{with("tags", bson.A{"a", 1}), "tags.1 must be a string", wire.BadRequest},
		{with("caused_by", bson.A{""}), "caused_by.0", wire.BadRequest},
		{with("ts", "today"), "ts must be", wire.BadRequest},
		{with("ts", -1), "ts is -1", wire.BadRequest},
		{with("ts", 1.5), "ts is 1.5", wire.BadRequest},
		{with("deliver_at", "tomorrow"), "deliver_at must be", wire.BadRequest},
		{with("ttl_ms", 0), "ttl_ms must be", wire.BadRequest},
		{with("sid", strings.Repeat("s", wire.MaxSIDBytes+1)), "sid is", wire.BadRequest},
		{with("payload_json", "1"), "give one of payload,", wire.BadRequest},
		{append(good[:2:2], bson.E{Key: "payload_json", Value: "{"}), "payload", wire.BadJSON},
		{append(good[:2:2], bson.E{Key: "payload_binary", Value: "x"}), "payload_binary must be binary", wire.BadRequest},
		{with("payload", bson.D{{Key: "a", Value: bson.A{1, math.NaN()}}}), "payload.a.1 is NaN", wire.BadRequest},
		{with("payload", strings.Repeat("x", 1<<20)), "payload", wire.PayloadTooLarge},
	} {
		err := read(t, c.doc).item.Err
		if err == nil || err.Code != c.code || !strings.Contains(err.Msg, c.says) {
			t.Errorf("%v: %v, which should be %s and say %q", c.doc, err, c.code, c.says)
		}
	}
}

func TestPayloadMapping(t *testing.T) {
	decimal, _ := bson.ParseDecimal128("1.50")
	large, _ := bson.ParseDecimal128("1234567890123456789012345678901234E+10")
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "null"}, {true, "true"}, {"a\"b\u2028", "\"a\\\"b\u2028\""},
		{int32(-5), "-5"}, {int64(math.MaxInt64), "9223372036854775807"},
		{0.1, "0.1"}, {3.0, "3"}, {1e300, "1e+300"}, {5e-324, "5e-324"}, {math.Copysign(0, -1), "-0"},
		{decimal, "1.50"}, {large, large.String()},
		{time.UnixMilli(1723140000123), `"2024-08-08T18:00:00.123Z"`},
		{bson.DateTime(253402300800000), `"+010000-01-01T00:00:00.000Z"`},
		{bson.DateTime(-62198755200000), `"-000001-01-01T00:00:00.000Z"`},
		{someID, `"650102030405060708090a0b"`},
		{bson.Binary{Data: []byte{0, 255}}, `"AP8="`},
		{bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, `"30313233-3435-3637-3839-616263646566"`},
		{bson.Symbol("s"), `"s"`}, {bson.Undefined{}, "null"},
		{bson.Timestamp{T: 1, I: 2}, `{"$timestamp":{"t":1,"i":2}}`},
		{bson.Regex{Pattern: "a", Options: "i"}, `{"$regularExpression":{"pattern":"a","options":"i"}}`},
		{bson.MinKey{}, `{"$minKey":1}`},
		{bson.D{{Key: "b", Value: bson.A{1, bson.A{}, bson.D{}}}, {Key: "a", Value: nil}}, `{"b":[1,[],{}],"a":null}`},
	} {
		e := read(t, bson.D{{Key: "_id", Value: "x"}, {Key: "topic", Value: "t"}, {Key: "payload", Value: c.value}})
		if e.item.Err != nil || string(e.item.Event.Payload) != c.want {
			t.Errorf("%T %v: %s (%v), not %s", c.value, c.value, e.item.Event.Payload, e.item.Err, c.want)
		}
	}
}

// FuzzReadWhole: no document, however broken, is worse than an error.
func FuzzReadWhole(f *testing.F) {
	f.Add([]byte(raw(f, bson.D{{Key: "_id", Value: "x"}, {Key: "topic", Value: "t"}, {Key: "headers", Value: bson.D{{Key: "a", Value: "b"}}},
		{Key: "tags", Value: bson.A{"a"}}, {Key: "ts", Value: 1},
		{Key: "payload", Value: bson.D{{Key: "d", Value: bson.A{1.5, time.UnixMilli(5)}}}}})))
	f.Fuzz(func(t *testing.T, b []byte) {
		if bson.Raw(b).Validate() != nil {
			return // a driver hands out what its server sent, and that is BSON
		}
		e := newEntry(b)
		e.readWhole(b, wire.DefaultLimits())
		if e.item.Err == nil {
			if _, err := codec.CompactPayload(e.item.Event.Payload, wire.DefaultLimits()); err != nil {
				t.Errorf("payload %q: %v", e.item.Event.Payload, err)
			}
		}
	})
}

// A failure that is marked late, when its sender has given up, does not undo a later one.
func TestALateMarkChangesNothing(t *testing.T) {
	a := newApp(t)
	a.insert(bson.D{{Key: "_id", Value: 1}, {Key: "attempts", Value: 2}})
	_, id, err := bson.MarshalValue(1)
	require.NoError(t, err)
	for _, attempts := range []int{0, 1, 2} {
		want := max(2, attempts+1)
		m := mark{e: &entry{id: bson.RawValue{Type: bson.TypeInt32, Value: id}, attempts: attempts}, err: wire.Errorf(wire.Internal, "mishap")}
		if _, err := a.coll.BulkWrite(t.Context(), []mongo.WriteModel{m.model(time.Now())}); err != nil {
			t.Fatal(err)
		}
		var d struct{ Attempts int }
		if err := a.coll.FindOne(t.Context(), bson.D{}).Decode(&d); err != nil || d.Attempts != want {
			t.Errorf("after a failure of attempt %d: %d attempts, %v; want %d", attempts+1, d.Attempts, err, want)
		}
	}
}
