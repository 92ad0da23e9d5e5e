package store_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/store"
	"github.com/sluice-bus/sluice/test/require"
)

func event(seq int) bson.Raw {
	d, err := bson.Marshal(bson.D{{Key: "_id", Value: fmt.Sprintf("orders/%d", seq)}, {Key: "topic", Value: "orders"},
		{Key: "partition", Value: int32(seq % 8)}, {Key: "seq", Value: int64(seq)}, {Key: "ts", Value: int64(seq)},
		{Key: "payload", Value: bson.D{{Key: "n", Value: seq}}}})
	if err != nil {
		panic(err)
	}
	return d
}

func events(b testing.TB, n int) *store.Store {
	s := store.New()
	index(b, s, `{"key":{"topic":1,"partition":1,"seq":1},"name":"seq","unique":true}`, `{"key":{"topic":1,"ts":1},"name":"ts"}`)
	for i := range n {
		if _, err := s.Insert(ns, event(i)); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkInsert(b *testing.B) {
	s := events(b, 10_000)
	b.ReportAllocs()
	for i := 10_000; b.Loop(); i++ {
		if _, err := s.Insert(ns, event(i)); err != nil {
			b.Fatal(err)
		}
		if i%10 == 0 {
			s.Fork()
		}
	}
}

func BenchmarkReadRange(b *testing.B) {
	s := events(b, 10_000)
	f := filter(b, `{"topic":"orders","partition":3,"seq":{"$gte":5000}}`)
	r := store.FindRequest{Filter: f, Sort: order(b, `{"seq":1}`), Limit: 10}
	b.ReportAllocs()
	for b.Loop() {
		if docs, err := s.All(ns, r); err != nil || len(docs) != 10 {
			b.Fatal(len(docs), err)
		}
	}
}

func BenchmarkUpdateByID(b *testing.B) {
	s := events(b, 10_000)
	r := store.UpdateRequest{Filter: filter(b, `{"_id":"orders/77"}`), Update: update(b, `{"$inc":{"payload.n":1}}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Update(ns, r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAnIndexReadsItsRangeAlone(t *testing.T) {
	s := events(t, 2_000)
	for text, most := range map[string]int{
		`{"topic":"orders","partition":3,"seq":{"$gte":1990}}`:                        2,
		`{"topic":"orders","partition":{"$in":[-1,3]},"seq":{"$gt":1990}}`:            2,
		`{"$or":[{"topic":"orders","ts":1990},{"topic":"orders","ts":{"$gt":1998}}]}`: 2,
		`{"_id":{"$in":["orders/1","orders/2"]}}`:                                     2,
		`{"topic":"orders","ts":{"$gte":100,"$lte":101}}`:                             2,
		`{"payload.n":7}`: 2_000,
	} {
		cur, err := s.Find(ns, store.FindRequest{Filter: filter(t, text)})
		require.NoError(t, err)
		if _, _, err := cur.Next(s, 3_000, 1<<30); err != nil || cur.Examined.Documents > most {
			t.Errorf("%s: %d documents were looked at, %v", text, cur.Examined.Documents, err)
		}
	}
	limited := store.FindRequest{Filter: filter(t, `{"topic":"orders","partition":{"$eq":3}}`), Sort: order(t, `{"seq":-1}`), Limit: 5}
	cur, err := s.Find(ns, limited)
	require.NoError(t, err)
	if docs, _, err := cur.Next(s, 3_000, 1<<30); len(docs) != 5 || cur.Examined.Documents > 6 {
		t.Errorf("%d documents were looked at for the last %d, %v", cur.Examined.Documents, len(docs), err)
	}
}
