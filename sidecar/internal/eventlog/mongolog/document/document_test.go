package document

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

func fullRecord() *eventlog.Record {
	return &eventlog.Record{AcceptedAt: 1723140000007, Event: wire.Event{
		ID: "id-1", TS: 1723140000000, Topic: "orders.created", Partition: 3, Seq: 1042, Key: "customer \"17\"\x00é", SID: "boot-1",
		Headers: wire.Headers{{Name: "traceparent", Value: "00-abc"}, {Name: "a", Value: "é\n\x00"}, {Name: "b", Value: ""}},
		Tags:    []string{"eu", "", "eu"}, CausedBy: []string{"id-0"}, Payload: []byte(`{"any":"JSON","n":17}`),
	}}
}

func TestRecordsReadBackEqual(t *testing.T) {
	bare := &eventlog.Record{AcceptedAt: 1, Event: wire.Event{ID: "é", Topic: "t", Seq: 1, Payload: []byte("null")}}
	last := fullRecord()
	last.Partition, last.Seq, last.TS, last.AcceptedAt = 1023, math.MaxInt64, wire.MaxTS, wire.MaxTS
	for _, r := range []*eventlog.Record{fullRecord(), bare, last} {
		s, field := there(t, r)
		if !reflect.DeepEqual(s.Record, r) {
			t.Errorf("got  %+v\nwant %+v", s.Record, r)
		}
		if s.Gone || !bytes.Equal(s.Hash, hashOf(&r.Event)) || field != FieldPayload {
			t.Errorf("got %+v in %s", s, field)
		}
	}
}

func TestDocumentsHaveTheirFieldsInOrder(t *testing.T) {
	doc, err := Append(nil, "orders.created", 0, fullRecord(), -5)
	require.NoError(t, err)
	hash := hashOf(&fullRecord().Event)
	want := bson.D{
		{Key: "_id", Value: "orders.created/id-1"}, {Key: "topic", Value: "orders.created"}, {Key: "partition", Value: int32(3)},
		{Key: "seq", Value: int64(1042)},
		{Key: "ts", Value: int64(1723140000000)}, {Key: "accepted", Value: int64(1723140000007)}, {Key: "id", Value: "id-1"},
		{Key: "key", Value: "customer \"17\"\x00é"}, {Key: "sid", Value: "boot-1"}, {Key: "tags", Value: bson.A{"eu", "", "eu"}},
		{Key: "caused_by", Value: bson.A{"id-0"}},
		{Key: "headers", Value: bson.D{{Key: "traceparent", Value: "00-abc"}, {Key: "a", Value: "é\n\x00"}, {Key: "b", Value: ""}}},
		{Key: "payload", Value: bson.D{{Key: "any", Value: "JSON"}, {Key: "n", Value: int32(17)}}}, {Key: "hash", Value: hash},
		{Key: "writer", Value: int64(-5)},
	}
	marshalled, err := bson.Marshal(want)
	require.NoError(t, err)
	if !bytes.Equal(doc, marshalled) {
		t.Errorf("got  %v\nwant %v", bson.Raw(doc), bson.Raw(marshalled))
	}
	if id := ID("orders.created", 0, "id-1"); id != "orders.created/id-1" {
		t.Errorf("ID is %s", id)
	}
}

func TestHeadersWithAnyNamesReadBackEqual(t *testing.T) {
	for _, names := range [][]string{{"ok", ""}, {"a.b"}, {"$c", "x"}, {"nul\x00"}, {"x", "_id"}, {"_id"}, {"twice", "twice"}} {
		r := record("1")
		for _, name := range names {
			r.Headers = append(r.Headers, wire.Header{Name: name, Value: "of " + name})
		}
		s, _ := there(t, r)
		if !reflect.DeepEqual(s.Record.Headers, r.Headers) {
			t.Errorf("%q became %q", r.Headers, s.Record.Headers)
		}
	}
}

func TestAnyRecordReadsBackEqual(t *testing.T) {
	text := rapid.String()
	rapid.Check(t, func(rt *rapid.T) {
		r := record("{}")
		r.ID, r.Key, r.SID = text.Draw(rt, "id"), text.Draw(rt, "key"), text.Draw(rt, "sid")
		r.Partition, r.Seq = rapid.IntRange(0, 1023).Draw(rt, "partition"), rapid.Uint64Range(1, math.MaxInt64).Draw(rt, "seq")
		r.TS, r.AcceptedAt = rapid.Int64Range(0, wire.MaxTS).Draw(rt, "ts"), rapid.Int64Range(0, wire.MaxTS).Draw(rt, "accepted")
		if list := rapid.SliceOfN(text, 0, 3).Draw(rt, "tags"); len(list) > 0 {
			r.Tags, r.CausedBy = list, list[1:]
		}
		if len(r.CausedBy) == 0 {
			r.CausedBy = nil
		}
		for _, name := range rapid.SliceOfNDistinct(text, 0, 4, rapid.ID).Draw(rt, "names") {
			r.Headers = append(r.Headers, wire.Header{Name: name, Value: text.Draw(rt, "value")})
		}
		if s, _ := there(rt, r); !reflect.DeepEqual(s.Record, r) {
			rt.Fatalf("got  %+v\nwant %+v", s.Record, r)
		}
	})
}

func TestAppendRefusesWhatMongoDBWould(t *testing.T) {
	r := record("x")
	r.Binary, r.Payload = true, make([]byte, MaxBytes)
	dst, err := Append([]byte("before"), "t", 0, r, 1)
	if err == nil || string(dst) != "before" || !strings.Contains(err.Error(), `"id-1"`) {
		t.Errorf("got %d bytes, %v", len(dst), err)
	}
	empty, _ := Append(nil, "t", 0, &eventlog.Record{Event: wire.Event{ID: "id-1", Binary: true}}, 1)
	r.Payload = r.Payload[:MaxBytes-len(empty)]
	if dst, err = Append(nil, "t", 0, r, 1); err != nil || len(dst) != MaxBytes {
		t.Errorf("the largest: got %d bytes, %v", len(dst), err)
	}
}

// TestMaxPayload: the largest event within the limits makes a document, and so does its dead
// letter.
func TestMaxPayload(t *testing.T) {
	lim := wire.DefaultLimits()
	if got := MaxPayload(lim); got < 15<<20 {
		t.Errorf("by default at most %d bytes", got)
	}
	lim.HeaderCount, lim.HeaderBytes, lim.KeyBytes = 2000, 1<<20, 1<<20
	long := func(n int) string { return strings.Repeat("x", n) }
	r := &eventlog.Record{Event: wire.Event{
		ID: long(wire.MaxIDBytes), Key: long(lim.KeyBytes), SID: long(wire.MaxSIDBytes),
		Topic:    long(wire.MaxReadTopicBytes - len(wire.DeadLetterSuffix)),
		Tags:     slices.Repeat([]string{long(wire.MaxTagBytes)}, wire.MaxTags),
		CausedBy: slices.Repeat([]string{long(wire.MaxIDBytes)}, wire.MaxTags),
		Headers:  slices.Repeat(wire.Headers{{Name: ".", Value: long(lim.HeaderBytes/lim.HeaderCount - 1)}}, lim.HeaderCount),
		Payload:  []byte(`"` + long(MaxPayload(lim)-2) + `"`),
	}}
	if _, err := Append(nil, r.Topic, 0, r, 1); err != nil {
		t.Error(err)
	}
	letter := eventlog.DeadLetter(r, eventlog.Death{Group: long(wire.MaxGroupBytes), Reason: long(wire.MaxReasonBytes)}, time.Now())
	if _, err := Append(nil, letter.Topic, 0, letter, 1); err != nil {
		t.Error(err)
	}
	lim.HeaderBytes, lim.HeaderCount = 1<<62, 1<<62
	if got := MaxPayload(lim); got != 0 {
		t.Errorf("%d bytes beside headers that take all", got)
	}
}

func TestStubs(t *testing.T) {
	hash := bytes.Repeat([]byte{7}, 32)
	raw, err := bson.Marshal(bson.D{
		{Key: "_id", Value: "t/x"}, {Key: "gone", Value: true}, {Key: "topic", Value: "t"}, {Key: "partition", Value: int32(3)},
		{Key: "seq", Value: int64(9)},
		{Key: "ts", Value: int64(5)}, {Key: "accepted", Value: int64(6)}, {Key: "id", Value: "x"}, {Key: "hash", Value: hash},
		{Key: "expireAt", Value: bson.DateTime(1234)},
	})
	require.NoError(t, err)
	s, err := Decode(raw)
	want := Stored{Gone: true, Hash: hash, Record: &eventlog.Record{AcceptedAt: 6, Event: wire.Event{ID: "x", Topic: "t",
		Partition: 3, Seq: 9, TS: 5}}}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v (%+v), %v", s, s.Record, err)
	}
}

// document is a whole event's document as BSON, changed.
func document(t testing.TB, change func(m map[string]any)) []byte {
	doc, err := Append(nil, "orders.created", 0, fullRecord(), 1)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, bson.Unmarshal(doc, &m))
	change(m)
	if doc, err = bson.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDamagedDocumentsSayWhatIsWrong(t *testing.T) {
	const id = `event document "orders.created/id-1": field `
	for want, change := range map[string]func(m map[string]any){
		id + `seq: it is not a whole number`:                                     func(m map[string]any) { m["seq"] = "1" },
		id + `seq: it is missing`:                                                func(m map[string]any) { delete(m, "seq") },
		id + `partition: it is not a whole number`:                               func(m map[string]any) { m["partition"] = -1 },
		id + `ts: it is not a whole number`:                                      func(m map[string]any) { m["ts"] = 1.5 },
		id + `accepted: it is not a whole number`:                                func(m map[string]any) { m["accepted"] = math.NaN() },
		id + `topic: it is missing`:                                              func(m map[string]any) { delete(m, "topic") },
		id + `id: it is not a string`:                                            func(m map[string]any) { m["id"] = 1 },
		id + `id: it is missing`:                                                 func(m map[string]any) { m["id"] = nil },
		id + `key: it is not a string`:                                           func(m map[string]any) { m["key"] = true },
		id + `hash: it is not binary`:                                            func(m map[string]any) { m["hash"] = "x" },
		id + `tags: it is of type string, not array`:                             func(m map[string]any) { m["tags"] = "eu" },
		id + `caused_by: it is not a string`:                                     func(m map[string]any) { m["caused_by"] = bson.A{1} },
		id + `headers: it is not a string`:                                       func(m map[string]any) { m["headers"] = bson.M{"a": 1} },
		id + `headers: it is of type array, not embedded document`:               func(m map[string]any) { m["headers"] = bson.A{} },
		id + `headers_list: it is of type 32-bit integer, not embedded document`: func(m map[string]any) { m["headers_list"] = bson.A{int32(1)} },
		id + `payload: it is missing`:                                            func(m map[string]any) { delete(m, "payload") },
		id + `payload_json: it is not binary`:                                    func(m map[string]any) { m["payload_json"] = "1" },
		id + `payload_bytes: it is not binary`:                                   func(m map[string]any) { m["payload_bytes"] = 1 },
		`event document without _id: field seq: it is missing`:                   func(m map[string]any) { delete(m, "_id"); delete(m, "seq") },
		`event document whose _id is no string: field seq: it is missing`:        func(m map[string]any) { m["_id"] = 1; delete(m, "seq") },
	} {
		if _, err := Decode(document(t, change)); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for _, raw := range [][]byte{nil, {}, {5, 0, 0, 0}, {4, 0, 0, 0, 0}, {5, 0, 0, 0, 1}, {255, 255, 255, 255, 0}, {6, 0, 0, 0, 2, 0}} {
		if _, err := Decode(raw); err == nil || err.Error() != "event document without _id is not valid BSON" {
			t.Errorf("% x: got %v", raw, err)
		}
	}
	nested := document(t, func(m map[string]any) { m["payload"] = bson.M{"a": "text"} })
	at := bytes.Index(nested, []byte("text\x00"))
	binary.LittleEndian.PutUint32(nested[at-4:], 1000)
	if _, err := Decode(nested); err == nil || err.Error() != id+`payload: it is not valid BSON` {
		t.Errorf("got %v", err)
	}
}

// TestEditedDocumentsAreRead: people edit documents in a shell, and tools turn numbers into other
// types.
func TestEditedDocumentsAreRead(t *testing.T) {
	oid, _ := bson.ObjectIDFromHex("5ef7fdd91c19e3222b41b839")
	tiny, _ := bson.ParseDecimal128("1.5E-400")
	nan, _ := bson.ParseDecimal128("NaN")
	for _, x := range []struct {
		payload any
		want    string
	}{
		{bson.D{{Key: "$set", Value: 1}, {Key: "a.b", Value: int64(2)}, {Key: "", Value: 3.0},
			{Key: "a.b", Value: nil}}, `{"$set":1,"a.b":2,"":3.0,"a.b":null}`},
		{bson.A{bson.A{}, bson.A{bson.M{}}}, `[[],[{}]]`},
		{oid, `{"$oid":"5ef7fdd91c19e3222b41b839"}`},
		{bson.A{bson.DateTime(5)}, `[{"$date":{"$numberLong":"5"}}]`},
		{math.NaN(), `{"$numberDouble":"NaN"}`}, {math.Inf(-1), `{"$numberDouble":"-Infinity"}`},
		{tiny, `1.5E-400`}, {nan, `{"$numberDecimal":"NaN"}`},
		{[]byte{1, 2}, `{"$binary":{"base64":"AQI=","subType":"00"}}`},
		{bson.Regex{Pattern: `a"\`, Options: "i"}, `{"$regularExpression":{"pattern":"a\"\\","options":"i"}}`},
		{bson.Timestamp{T: 1, I: 2}, `{"$timestamp":{"t":1,"i":2}}`},
		{bson.JavaScript(`f("x")`), `{"$code":"f(\"x\")"}`},
		{bson.CodeWithScope{Code: `g`, Scope: bson.D{{Key: "x", Value: int32(1)}}}, `{"$code":"g","$scope":{"x":1}}`},
		{bson.Symbol("s"), `"s"`}, {bson.Undefined{}, `null`}, {bson.MinKey{}, `{"$minKey":1}`}, {bson.MaxKey{}, `{"$maxKey":1}`},
		{bson.DBPointer{DB: "d", Pointer: oid}, `{"$dbPointer":{"$ref":"d","$id":{"$oid":"5ef7fdd91c19e3222b41b839"}}}`},
	} {
		s, err := Decode(document(t, func(m map[string]any) {
			m["payload"], m["extra"], m["seq"], m["partition"], m["ts"], m["key"] = x.payload, bson.M{"a": 1}, int32(7), int64(2), 5.0, nil
		}))
		if err != nil {
			t.Errorf("%v: %v", x.payload, err)
			continue
		}
		if r := s.Record; string(r.Payload) != x.want || r.Seq != 7 || r.Partition != 2 || r.TS != 5 || r.Key != "" {
			t.Errorf("%v became %s in %+v", x.payload, r.Payload, r)
		}
		if _, err := codec.AppendCompact(nil, s.Record.Payload, maxReadDepth); err != nil {
			t.Errorf("%s: %v", s.Record.Payload, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, x := range corpus {
		if len(x.text) < 1000 {
			doc, err := Append(nil, "t", 0, record(x.text), 1)
			require.NoError(f, err)
			f.Add(doc)
		}
	}
	f.Add(document(f, func(m map[string]any) {
		m["payload"] = bson.A{bson.CodeWithScope{Code: "c", Scope: bson.M{}}, bson.Regex{Pattern: "a"}, bson.DBPointer{DB: "d"},
			bson.DateTime(1), bson.Symbol("s"), bson.Timestamp{T: 1}}
		m["headers_list"] = bson.A{bson.M{"name": "a", "value": "b"}}
	}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := Decode(raw)
		if err != nil {
			return
		}
		r := s.Record
		if _, wrong := codec.AppendCompact(nil, r.Payload, 2*maxReadDepth); wrong != nil && bson.Raw(raw).Lookup(FieldPayload).Type != 0 &&
			bson.Raw(raw).Lookup(FieldPayloadJSON).Type == 0 && !r.Binary && !s.Gone {
			t.Fatalf("the payload became %q: %v", r.Payload, wrong)
		}
		again, err := Append(nil, r.Topic, 0, r, 1)
		require.NoError(t, err)
		back, err := Decode(again)
		require.NoError(t, err)
		if !codec.SameContent(&r.Event, &back.Record.Event) {
			t.Fatalf("%+v became %+v", r, back.Record)
		}
	})
}

func hashOf(e *wire.Event) []byte {
	sum := codec.ContentHash(e)
	return sum[:]
}
