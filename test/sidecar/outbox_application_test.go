package sidecar

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/test/require"
)

// began is the ts of the first document.
const began = 1_700_000_000_000

// written is a document that an application has inserted, and its expected outcome.
type written struct {
	id     any // _id
	doc    bson.D
	want   wire.Event // without TS, Partition and Seq where those are the sidecar's
	hasTS  bool
	reason string // of an error; "" for a document that can be published
}

// place compares two documents of one key by the order of their events: (ts, _id), by MongoDB's
// order of values. A missing ts is before all others.
func (w *written) place(o *written) int {
	return cmp.Or(cmp.Compare(w.want.TS, o.want.TS), compareID(w.id, o.id))
}

// compareID compares as MongoDB does: numbers, strings, binary, ObjectIds.
func compareID(a, b any) int {
	rankA, number, text := rank(a)
	rankB, otherNumber, otherText := rank(b)
	return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(number, otherNumber), bytes.Compare(text, otherText))
}

func rank(id any) (kind int, number int64, text []byte) {
	switch id := id.(type) {
	case int32:
		return 1, int64(id), nil
	case int64:
		return 1, id, nil
	case string:
		return 2, 0, []byte(id)
	case bson.Binary:
		return 3, 0, id.Data
	case bson.ObjectID:
		return 4, 0, id[:]
	}
	panic(fmt.Sprintf("no rank for %T", id))
}

// newID is an _id of the n-th kind, and the event's id that it makes.
func newID(n int) (id any, text string) {
	switch n % 5 {
	case 0:
		o := bson.NewObjectID()
		return o, o.Hex()
	case 1:
		u := uuid.New()
		return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: u[:]}, u.String()
	case 2:
		return int32(n), fmt.Sprint(n)
	case 3:
		return int64(n), fmt.Sprint(n)
	}
	s := fmt.Sprintf("s-%05d", n)
	return s, s
}

var someTime = time.Date(2024, 2, 29, 12, 0, 0, 7e6, time.UTC)

// payloads are values of all kinds, and the JSON that they become.
var payloads = []struct {
	value any
	json  string
}{
	{bson.D{{Key: "z", Value: 1}, {Key: "a", Value: bson.D{{Key: "b", Value: bson.A{int64(9007199254740993), 0.1, nil}}}}},
		`{"z":1,"a":{"b":[9007199254740993,0.1,null]}}`},
	{"text with \"quotes\" and ü", `"text with \"quotes\" and ü"`},
	{bson.A{}, `[]`},
	{int32(-5), `-5`},
	{2.5, `2.5`},
	{nil, `null`},
	{true, `true`},
	{bson.D{{Key: "at", Value: someTime}, {Key: "raw", Value: bson.Binary{Data: []byte{1, 2, 3}}}},
		`{"at":"2024-02-29T12:00:00.007Z","raw":"AQID"}`},
}

// topics are where the application's documents go.
var topics = []string{"orders.created", "orders.paid"}

// newDocument is the n-th document of an application. One key's documents have no ts, so that _id
// alone orders them. The others have a ts that rises every ten documents, or (steadily) with every
// one.
func newDocument(n int, steadily bool) *written {
	w := &written{}
	var text string
	w.id, text = newID(n)
	w.want.Topic = topics[n%2]
	ts := int64(began + n/10*10)
	if steadily {
		ts = int64(began + n)
	}
	w.hasTS = true
	switch key := n / 2 % 6; key {
	case 0: // without a key
	case 1:
		w.want.Key, w.hasTS = "without-ts", false
		text = fmt.Sprintf("t-%05d", n)
		w.id = text
	default:
		w.want.Key = fmt.Sprintf("customer-%d", key)
	}
	w.doc = bson.D{{Key: "_id", Value: w.id}, {Key: "topic", Value: w.want.Topic}, {Key: "status", Value: "pending"}}
	add := func(name string, value any) { w.doc = append(w.doc, bson.E{Key: name, Value: value}) }
	if n%7 == 0 {
		text = fmt.Sprintf("event-%d", n)
		add("id", text)
	}
	w.want.ID = text
	if w.want.Key != "" {
		add("key", w.want.Key)
	}
	if w.hasTS {
		w.want.TS = ts
		if w.want.Key == "customer-5" { // both forms under one key would be ordered by their type
			add("ts", time.UnixMilli(ts))
		} else {
			add("ts", ts)
		}
	}
	if n%3 == 0 {
		w.want.Headers = wire.Headers{{Name: "source", Value: "shop"}, {Name: "n", Value: fmt.Sprint(n)}}
		add("headers", bson.D{{Key: "source", Value: "shop"}, {Key: "n", Value: fmt.Sprint(n)}})
	}
	if n%4 == 0 {
		w.want.Tags = []string{"eu", fmt.Sprint(n)}
		add("tags", bson.A{"eu", fmt.Sprint(n)})
	}
	p := payloads[n%len(payloads)]
	w.want.Payload = []byte(p.json)
	add("payload", p.value)
	return w
}

// badDocuments are documents that no sidecar can publish.
func badDocuments() []*written {
	var list []*written
	bad := func(reason string, fields ...bson.E) {
		w := &written{id: fmt.Sprintf("bad-%02d", len(list)), reason: reason}
		w.doc = bson.D{{Key: "_id", Value: w.id}, {Key: "status", Value: "pending"}, {Key: "ts", Value: int64(began)}}
		has := map[string]bool{}
		for _, f := range fields {
			has[f.Key] = true
			if f.Key == "_id" {
				w.id, w.doc[0].Value = f.Value, f.Value
			} else if f.Key == "ts" {
				w.doc[2].Value = f.Value
			} else if f.Value != absent {
				w.doc = append(w.doc, f)
			}
		}
		for _, f := range []bson.E{{Key: "topic", Value: topics[0]}, {Key: "key", Value: "customer-2"}, {Key: "payload", Value: 1}} {
			if !has[f.Key] {
				w.doc = append(w.doc, f)
			}
		}
		list = append(list, w)
	}
	bad("bad_request: topic", bson.E{Key: "topic", Value: "orders created"})
	bad("bad_request: topic", bson.E{Key: "topic", Value: absent})
	bad("bad_request: topic", bson.E{Key: "topic", Value: "_mine"})
	bad("bad_request: headers.n must be a string", bson.E{Key: "headers", Value: bson.D{{Key: "n", Value: 17}}})
	bad("bad_request: payload is missing", bson.E{Key: "payload", Value: absent})
	bad("bad_request: key", bson.E{Key: "key", Value: strings.Repeat("k", 513)})
	bad("bad_request: ts must be", bson.E{Key: "ts", Value: "yesterday"})
	bad("bad_request: _id must be", bson.E{Key: "_id", Value: true})
	bad("bad_request: id", bson.E{Key: "id", Value: "two words"})
	return list
}

// largeDocument cannot be published either. It is for tests with few documents: a server without
// indexes reads it with each of them.
func largeDocument() *written {
	const id = "large"
	return &written{id: id, reason: "payload_too_large: ", doc: bson.D{
		{Key: "_id", Value: id}, {Key: "topic", Value: topics[0]}, {Key: "status", Value: "pending"},
		{Key: "payload", Value: strings.Repeat("x", 1<<20)},
	}}
}

// absent is the value of a field that is left out.
const absent = "\x00absent"

// insert inserts documents as an application would, one after the other.
func insert(t *testing.T, coll *mongo.Collection, docs ...*written) {
	t.Helper()
	for _, w := range docs {
		if _, err := coll.InsertOne(t.Context(), w.doc); err != nil {
			t.Fatalf("insert %v: %v", w.id, err)
		}
	}
}

// found is a document as it is in the outbox.
type found struct {
	ID        bson.RawValue `bson:"_id"`
	Status    string
	Topic     string
	Seq       *int64
	Partition *int32
	DoneAt    *time.Time `bson:"done_at"`
	Error     string
	Attempts  int
	FailedAt  *time.Time `bson:"failed_at"`
}

func rawID(t *testing.T, id any) string {
	t.Helper()
	kind, raw, err := bson.MarshalValue(id)
	require.NoError(t, err)
	return string(kind) + string(raw)
}

// read reads the whole outbox, by _id.
func read(t *testing.T, coll *mongo.Collection) map[string]found {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var list []found
	require.NoError(t, cursor.All(t.Context(), &list))
	docs := map[string]found{}
	for _, f := range list {
		docs[string(f.ID.Type)+string(f.ID.Value)] = f
	}
	return docs
}

// awaitStatus waits until at least that many documents have the status.
func awaitStatus(t *testing.T, coll *mongo.Collection, status string, n int) {
	t.Helper()
	await(t, func() string {
		got, err := coll.CountDocuments(t.Context(), bson.D{{Key: "status", Value: status}})
		require.NoError(t, err)
		if got >= int64(n) {
			return ""
		}
		return fmt.Sprintf("%d of %d documents are %q", got, n, status)
	})
}

// awaitSettled waits until nothing is pending.
func awaitSettled(t *testing.T, coll *mongo.Collection) {
	t.Helper()
	await(t, func() string {
		n, err := coll.CountDocuments(t.Context(), bson.D{{Key: "status", Value: bson.D{{Key: "$nin", Value: bson.A{"done", "error"}}}}})
		require.NoError(t, err)
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%d documents are not settled", n)
	})
}

func (f found) done() bool {
	placed := f.Seq != nil && *f.Seq >= 1 && f.Partition != nil
	return f.Status == "done" && placed && f.DoneAt != nil && f.Error == ""
}

func (f found) failed(reason string) bool {
	once := f.Attempts == 1 && f.FailedAt != nil && f.Seq == nil
	return f.Status == "error" && strings.HasPrefix(f.Error, reason) && once
}

// checkMarks compares the marks in the outbox with the expected ones.
func checkMarks(t *testing.T, docs map[string]found, all []*written) {
	t.Helper()
	for _, w := range all {
		f, ok := docs[rawID(t, w.id)]
		switch {
		case !ok:
			t.Errorf("document %v is gone", w.id)
		case w.reason == "" && !f.done():
			t.Errorf("document %v is %+v; want it done, with seq, partition and done_at", w.id, f)
		case w.reason != "" && !f.failed(w.reason):
			t.Errorf("document %v is %+v; want an error %q, attempts 1 and failed_at", w.id, f, w.reason)
		}
	}
}

// checkEvents compares the events of a topic with its documents. Each event is there once, as it
// was written and where its mark says. Events of one key are in the order of (ts, _id).
func checkEvents(t *testing.T, topic string, events []wire.Event, docs map[string]found, all []*written) {
	t.Helper()
	byID := map[string]wire.Event{}
	for _, e := range events {
		if _, twice := byID[e.ID]; twice {
			t.Errorf("%s has event %s twice", topic, e.ID)
		}
		byID[e.ID] = e
	}
	keys := map[string][]*written{}
	expected := 0
	for _, w := range all {
		if w.reason != "" || w.want.Topic != topic {
			continue
		}
		expected++
		e, ok := byID[w.want.ID]
		if !ok {
			t.Errorf("%s has no event %s of document %v", topic, w.want.ID, w.id)
			continue
		}
		f := docs[rawID(t, w.id)]
		if f.Seq == nil || uint64(*f.Seq) != e.Seq || f.Partition == nil || int(*f.Partition) != e.Partition {
			t.Errorf("document %v says %+v; its event is at partition %d seq %d", w.id, f, e.Partition, e.Seq)
		}
		want := w.want
		want.Partition, want.Seq = e.Partition, e.Seq
		if !w.hasTS {
			want.TS = e.TS
		}
		if got, want := string(codec.AppendEventJSON(nil, &e)), string(codec.AppendEventJSON(nil, &want)); got != want || e.TS <= 0 {
			t.Errorf("document %v became %s\nwant %s", w.id, got, want)
		}
		if w.want.Key != "" {
			keys[w.want.Key] = append(keys[w.want.Key], w)
		}
	}
	if len(events) != expected {
		t.Errorf("%s has %d events of %d documents", topic, len(events), expected)
	}
	for key, list := range keys {
		slices.SortFunc(list, (*written).place)
		for i := range len(list) - 1 {
			a, b := byID[list[i].want.ID], byID[list[i+1].want.ID]
			if a.Seq >= b.Seq {
				t.Errorf("%s, key %s: %v (ts %d) has seq %d, and %v (ts %d) behind it seq %d", topic, key,
					list[i].id, a.TS, a.Seq, list[i+1].id, b.TS, b.Seq)
			}
		}
	}
}
