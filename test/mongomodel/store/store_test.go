package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
	"github.com/sluice-bus/sluice/test/require"
)

const ns = "db.c"

var now = time.UnixMilli(1_700_000_000_000)

func doc(t testing.TB, text string) bson.Raw {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(text), false, &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	return raw
}

func value(t testing.TB, text string) bson.RawValue {
	t.Helper()
	return query.Lookup(doc(t, `{"v":`+text+`}`), "v")
}

func filter(t testing.TB, text string) *query.Filter {
	t.Helper()
	f, err := query.ParseFilter(doc(t, text))
	require.NoError(t, err)
	return f
}

func update(t testing.TB, text string) *query.Update {
	t.Helper()
	u, err := query.ParseUpdate(value(t, text))
	require.NoError(t, err)
	return u
}

func order(t testing.TB, text string) *query.KeyPattern {
	t.Helper()
	s, err := query.ParseKeyPattern(doc(t, text))
	require.NoError(t, err)
	return s
}

func code(err error) int32 {
	var e *query.Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return -1
	}
	return 0
}

func insert(t testing.TB, s *store.Store, docs ...string) {
	t.Helper()
	for _, d := range docs {
		if _, err := s.Insert(ns, doc(t, d)); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
	}
}

func index(t testing.TB, s *store.Store, specs ...string) {
	t.Helper()
	for _, spec := range specs {
		if _, _, _, err := s.CreateIndexes(ns, []bson.Raw{doc(t, spec)}); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
	}
}

func ids(t testing.TB, docs []bson.Raw, err error) string {
	t.Helper()
	require.NoError(t, err)
	var all []string
	for _, d := range docs {
		all = append(all, query.Show(query.Lookup(d, "_id")))
	}
	return strings.Join(all, " ")
}

func TestDuplicateKeys(t *testing.T) {
	s := store.New()
	index(t, s, `{"key":{"a":1,"b.c":-1},"name":"ab","unique":true}`)
	insert(t, s, `{"_id":"x","a":1,"b":{"c":"y"}}`)
	_, err := s.Insert(ns, doc(t, `{"_id":"z","a":1.0,"b":{"c":"y"}}`))
	var e *query.Error
	if !errors.As(err, &e) || e.Code != 11000 ||
		e.Message != `E11000 duplicate key error collection: db.c index: ab dup key: { a: 1.0, b.c: "y" }` {
		t.Fatalf("%v", err)
	}
	info, err := bson.MarshalExtJSON(e.Info, false, false)
	if want := `{"keyPattern":{"a":1,"b.c":-1},"keyValue":{"a":1.0,"b.c":"y"}}`; err != nil || string(info) != want {
		t.Errorf("%s, %v", info, err)
	}
	if _, err := s.Insert(ns, doc(t, `{"_id":"x"}`)); code(err) != 11000 ||
		!strings.Contains(err.Error(), `index: _id_ dup key: { _id: "x" }`) {
		t.Errorf("%v", err)
	}
	insert(t, s, `{"_id":"other","a":2}`)
	if _, err := s.Update(ns, store.UpdateRequest{Filter: filter(t, `{"_id":"other"}`),
		Update: update(t, `{"$set":{"a":1,"b":{"c":"y"}}}`)}); code(err) != 11000 {
		t.Errorf("an update onto another's key: %v", err)
	}
	if _, err := s.Update(ns, store.UpdateRequest{Filter: filter(t, `{"_id":"x"}`), Update: update(t, `{"$set":{"a":1.0}}`)}); err != nil {
		t.Errorf("an update that keeps its own key: %v", err)
	}
	if _, _, _, err := s.CreateIndexes(ns, []bson.Raw{doc(t, `{"key":{"d":1},"name":"d","unique":true}`)}); code(err) != 11000 {
		t.Errorf("a unique index on two that have no such field: %v", err)
	}
}

func TestSparseAndPartialIndexes(t *testing.T) {
	s := store.New()
	index(t, s, `{"key":{"a":1},"name":"a","unique":true,"sparse":true}`,
		`{"key":{"b":1},"name":"b","unique":true,"partialFilterExpression":{"live":true}}`)
	insert(t, s, `{"_id":1}`, `{"_id":2}`, `{"_id":3,"b":1,"a":3}`, `{"_id":4,"b":1,"live":true,"a":4}`)
	if _, err := s.Insert(ns, doc(t, `{"_id":5,"b":1,"live":true}`)); code(err) != 11000 {
		t.Errorf("a second live one: %v", err)
	}
	all := store.FindRequest{Filter: filter(t, `{}`), Sort: order(t, `{"a":1,"_id":1}`)}
	if got, err := s.All(ns, all); ids(t, got, err) != "1 2 3 4" {
		t.Errorf("a sparse index served a find of all: %s", ids(t, got, err))
	}
	hinted := store.FindRequest{Filter: filter(t, `{"b":1}`), Hint: value(t, `"b"`)}
	if _, err := s.All(ns, hinted); code(err) != 291 {
		t.Errorf("a hint to a partial index that does not have all: %v", err)
	}
	hinted.Filter = filter(t, `{"b":1,"live":true}`)
	if got, err := s.All(ns, hinted); ids(t, got, err) != "4" {
		t.Errorf("%s", ids(t, got, err))
	}
	hinted.Hint = value(t, `{"foo":1}`)
	if _, err := s.All(ns, hinted); code(err) != query.BadValue {
		t.Errorf("a hint to no index: %v", err)
	}
}

func TestIndexConflicts(t *testing.T) {
	s := store.New()
	index(t, s, `{"key":{"a":1},"name":"a"}`)
	for spec, want := range map[string]int32{
		`{"key":{"a":1},"name":"a"}`:                         0,
		`{"key":{"a":1},"name":"a","unique":false}`:          0,
		`{"key":{"_id":1},"name":"_id_"}`:                    0,
		`{"key":{"a":1},"name":"b"}`:                         85,
		`{"key":{"a":1},"name":"a","unique":true}`:           85,
		`{"key":{"a":1},"name":"b","expireAfterSeconds":5}`:  85,
		`{"key":{"a":-1},"name":"a"}`:                        86,
		`{"key":{"b":1},"name":"b","foo":1}`:                 197,
		`{"key":{"b":"text"},"name":"b"}`:                    67,
		`{"key":{"b":1},"name":"b","expireAfterSeconds":-1}`: 67,
		`{"key":{"b":1}}`:                                    9,
	} {
		if _, _, _, err := s.CreateIndexes(ns, []bson.Raw{doc(t, spec)}); code(err) != want {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for which, want := range map[string]int32{`"nope"`: 27, `"_id_"`: 72, `{"a":1}`: 0} {
		if _, _, err := s.DropIndexes(ns, value(t, which)); code(err) != want {
			t.Errorf("%s: %v", which, err)
		}
	}
	if specs, err := s.Indexes(ns); err != nil || len(specs) != 1 {
		t.Errorf("%v, %v", specs, err)
	}
	if _, err := s.Indexes("db.nope"); code(err) != 26 {
		t.Errorf("%v", err)
	}
}

func TestUpsert(t *testing.T) {
	s := store.New()
	r := store.UpdateRequest{Filter: filter(t, `{"a":1,"b":{"$gt":1}}`), Update: update(t, `{"$inc":{"n":1},"$setOnInsert":{"c":2}}`),
		Upsert: true,
		NewID:  func() bson.RawValue { return value(t, `{"$oid":"010000000000000000000000"}`) }}
	got, err := s.Update(ns, r)
	if err != nil || got.UpsertedID.ObjectID() != (bson.ObjectID{1}) || len(got.Entries) != 2 || got.Before != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := `{ _id: ObjectId('010000000000000000000000'), a: 1, c: 2, n: 1 }`; query.ShowDocument(got.After) != want {
		t.Errorf("%s", query.ShowDocument(got.After))
	}
	r.Filter = filter(t, `{"a":1}`)
	if got, err = s.Update(ns, r); err != nil || got.Matched != 1 || got.Modified != 1 || got.UpsertedID.Type != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	r = store.UpdateRequest{Filter: filter(t, `{"_id":7,"a":9}`), Update: update(t, `{"x":1}`), Upsert: true}
	if got, err = s.Update(ns, r); err != nil || query.ShowDocument(got.After) != `{ _id: 7, x: 1 }` {
		t.Errorf("%+v, %v", got, err)
	}
	r.Multi = true
	if _, err = s.Update(ns, r); code(err) != query.FailedToParse {
		t.Errorf("a replacement of many: %v", err)
	}
}

func TestCappedCollections(t *testing.T) {
	s := store.New()
	if _, err := s.Create(ns, doc(t, `{"capped":true,"size":100000,"max":3}`)); err != nil {
		t.Fatal(err)
	}
	tail := func() *store.Cursor {
		cur, err := s.Find(ns, store.FindRequest{Filter: query.All, Tailable: true})
		require.NoError(t, err)
		return cur
	}
	if _, done, err := tail().Next(s, 10, 1<<20); !done || err != nil {
		t.Errorf("a tailable cursor of an empty collection lives on: %v", err)
	}
	insert(t, s, `{"_id":3}`, `{"_id":1}`)
	cur := tail()
	docs, done, err := cur.Next(s, 10, 1<<20)
	if ids(t, docs, err) != "3 1" || done {
		t.Errorf("%s, %v", ids(t, docs, err), done)
	}
	insert(t, s, `{"_id":2}`, `{"_id":0}`)
	if docs, done, err = cur.Next(s, 10, 1<<20); ids(t, docs, err) != "2 0" || done {
		t.Errorf("%s, %v", ids(t, docs, err), done)
	}
	if docs, err = s.All(ns, store.FindRequest{Filter: query.All, Natural: -1}); ids(t, docs, err) != "0 2 1" {
		t.Errorf("%s", ids(t, docs, err))
	}
	insert(t, s, `{"_id":5}`, `{"_id":6}`, `{"_id":7}`)
	if _, _, err = cur.Next(s, 10, 1<<20); code(err) != query.CappedPositionLost {
		t.Errorf("a position that was overwritten: %v", err)
	}
	if _, err = s.Find("db.other", store.FindRequest{Filter: query.All, Tailable: true}); err != nil {
		t.Errorf("no collection: %v", err)
	}
	if _, err = s.Create(ns, nil); code(err) != query.NamespaceExists {
		t.Errorf("%v", err)
	}
	if _, err = s.Create("db.d", doc(t, `{"capped":true}`)); code(err) != query.InvalidOptions {
		t.Errorf("%v", err)
	}
	small := doc(t, `{"capped":true,"size":4096}`)
	if _, err := s.Create("db.small", small); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := s.Insert("db.small", doc(t, fmt.Sprintf(`{"_id":%d,"x":%q}`, i, strings.Repeat("x", 100)))); err != nil {
			t.Fatal(err)
		}
	}
	if n, size := s.Count("db.small"); size > 4096 || n < 20 {
		t.Errorf("%d documents of %d bytes", n, size)
	}
}

func TestCursorsSeeLaterMoments(t *testing.T) {
	s := store.New()
	index(t, s, `{"key":{"a":1},"name":"a"}`)
	insert(t, s, `{"_id":1,"a":1}`, `{"_id":2,"a":2}`, `{"_id":4,"a":4}`)
	cur, err := s.Find(ns, store.FindRequest{Filter: filter(t, `{"a":{"$gt":0}}`)})
	require.NoError(t, err)
	docs, done, err := cur.Next(s, 2, 1<<20)
	if ids(t, docs, err) != "1 2" || done {
		t.Fatalf("%s, %v", ids(t, docs, err), done)
	}
	insert(t, s, `{"_id":3,"a":3}`)
	if docs, done, err = cur.Next(s, 2, 1<<20); ids(t, docs, err) != "3 4" || done {
		t.Fatalf("%s, %v: a full batch does not know yet that it was the last", ids(t, docs, err), done)
	}
	if docs, done, err = cur.Next(s, 2, 1<<20); len(docs) != 0 || !done || err != nil {
		t.Fatalf("%v, %v, %v", docs, done, err)
	}
	if cur, err = s.Find(ns, store.FindRequest{Filter: filter(t, `{"a":{"$gt":0}}`), Sort: order(t, `{"a":-1}`), Skip: 1,
		Limit: 2}); err != nil {
		t.Fatal(err)
	}
	if docs, done, err = cur.Next(s, 2, 1); ids(t, docs, err) != "3" || done {
		t.Fatalf("%s, %v: one fits", ids(t, docs, err), done)
	}
	if docs, done, err = cur.Next(s, 2, 1<<20); ids(t, docs, err) != "2" || !done {
		t.Fatalf("%s, %v: its limit was reached", ids(t, docs, err), done)
	}
	if cur, err = s.Find(ns, store.FindRequest{Filter: query.All}); err != nil {
		t.Fatal(err)
	}
	if _, _, err = cur.Next(s, 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Drop(ns); err != nil {
		t.Fatal(err)
	}
	insert(t, s, `{"_id":9}`)
	if _, _, err = cur.Next(s, 1, 1<<20); code(err) != query.QueryPlanKilled {
		t.Errorf("a cursor of a collection that was dropped: %v", err)
	}
}

func TestExpired(t *testing.T) {
	s := store.New()
	index(t, s, `{"key":{"at":1},"name":"at","expireAfterSeconds":10}`)
	insert(t, s, `{"_id":1,"at":{"$date":{"$numberLong":"1699999990000"}}}`, `{"_id":2,"at":{"$date":{"$numberLong":"1699999990001"}}}`,
		`{"_id":3,"at":5}`, `{"_id":4}`, `{"_id":5,"at":[{"$date":{"$numberLong":"1"}},{"$date":{"$numberLong":"2"}}]}`)
	var due []string
	for _, e := range s.Expired(now) {
		due = append(due, query.Show(e.ID))
	}
	if got := strings.Join(due, " "); got != "5 1" {
		t.Errorf("due: %s", got)
	}
}

func TestClaims(t *testing.T) {
	s := store.New()
	index(t, s, `{"key":{"a":1},"name":"a","unique":true}`)
	insert(t, s, `{"_id":1,"a":1}`)
	put := func(text string) []string {
		d := doc(t, text)
		return s.Claims(store.Entry{Op: store.Put, NS: ns, ID: query.Lookup(d, "_id"), Doc: d})
	}
	common := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
	}
	if !common(put(`{"_id":2,"a":5}`), put(`{"_id":3,"a":5.0}`)) || !common(put(`{"_id":2,"a":6}`), put(`{"_id":2.0,"a":7}`)) {
		t.Error("two that cannot both be stored do not conflict")
	}
	if common(put(`{"_id":2,"a":5}`), put(`{"_id":3,"a":6}`)) {
		t.Error("two that can both be stored conflict")
	}
	if !common(put(`{"_id":1,"a":2}`), put(`{"_id":3,"a":1}`)) {
		t.Error("one that gives a key up does not conflict with one that takes it")
	}
	if len(put(`{"_id":1,"a":1,"b":2}`)) != 1 {
		t.Error("one that keeps its key claims it")
	}
}

func TestTheGuardEndsAWrite(t *testing.T) {
	s := store.New()
	insert(t, s, `{"_id":1}`, `{"_id":2}`)
	refused := errors.New("refused")
	seen := 0
	s.Guard = func(store.Entry) error {
		if seen++; seen == 2 {
			return refused
		}
		return nil
	}
	got, err := s.Delete(ns, store.DeleteRequest{Filter: query.All, Multi: true})
	if !errors.Is(err, refused) || got.Deleted != 1 || len(got.Entries) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if n, _ := s.Count(ns); n != 1 {
		t.Errorf("%d documents are left", n)
	}
}

func TestForksAreApart(t *testing.T) {
	s := store.New()
	insert(t, s, `{"_id":1,"a":1}`)
	fork := s.Fork()
	insert(t, s, `{"_id":2}`)
	if _, err := fork.Delete(ns, store.DeleteRequest{Filter: query.All}); err != nil {
		t.Fatal(err)
	}
	index(t, fork, `{"key":{"a":1},"name":"a"}`)
	a, errA := s.All(ns, store.FindRequest{Filter: query.All})
	b, errB := fork.All(ns, store.FindRequest{Filter: query.All})
	if ids(t, a, errA) != "1 2" || ids(t, b, errB) != "" {
		t.Errorf("%s | %s", ids(t, a, errA), ids(t, b, errB))
	}
	if specs, _ := s.Indexes(ns); len(specs) != 1 {
		t.Errorf("an index of a fork is here too: %v", specs)
	}
}

// dump is all that a store has, to compare it with another.
func dump(t require.T, s *store.Store) []byte {
	var all bytes.Buffer
	for _, db := range s.Databases() {
		for _, c := range s.Collections(db) {
			fmt.Fprintln(&all, db, c.Name, c.Options)
			name := db + "." + c.Name
			specs, err := s.Indexes(name)
			require.NoError(t, err)
			docs, err := s.All(name, store.FindRequest{Filter: query.All})
			require.NoError(t, err)
			for _, d := range append(specs, docs...) {
				fmt.Fprintf(&all, "%x\n", []byte(d))
			}
		}
	}
	return all.Bytes()
}
