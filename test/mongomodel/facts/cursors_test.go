package facts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// many inserts n documents with _id 0 to n-1.
func (t *trial) many(n int) {
	t.Helper()
	var docs []any
	for i := range n {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "a", Value: i % 10}})
	}
	_, err := t.coll.InsertMany(t.Context(), docs)
	t.ok(err)
}

func (t *trial) capped(size int64, most int64) {
	t.Helper()
	o := options.CreateCollection().SetCapped(true).SetSizeInBytes(size)
	if most > 0 {
		o.SetMaxDocuments(most)
	}
	t.ok(t.db.CreateCollection(t.Context(), "c", o))
}

func (t *trial) tail() *mongo.Cursor {
	t.Helper()
	o := options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Second)
	cur, err := t.coll.Find(t.Context(), bson.D{}, o)
	t.ok(err)
	t.Cleanup(func() { cur.Close(context.WithoutCancel(t.Context())) })
	return cur
}

var cursors = []fact{
	{name: "a first batch has 101 documents", source: manual + "tutorial/iterate-a-cursor/", check: func(t *trial) {
		t.many(250)
		cur, err := t.coll.Find(t.Context(), bson.D{})
		t.ok(err)
		defer cur.Close(t.Context())
		if n := cur.RemainingBatchLength(); n != 101 || cur.ID() == 0 {
			t.Errorf("%d documents, cursor %d", n, cur.ID())
		}
	}},
	{name: "a cursor whose documents all came is closed", source: manual + "reference/command/find/", check: func(t *trial) {
		t.many(10)
		cur, err := t.coll.Find(t.Context(), bson.D{})
		t.ok(err)
		if n := cur.RemainingBatchLength(); n != 10 || cur.ID() != 0 {
			t.Errorf("%d documents, cursor %d", n, cur.ID())
		}
	}},
	{name: "a cursor's limit closes it", source: manual + "reference/command/find/", check: func(t *trial) {
		t.many(10)
		cur, err := t.coll.Find(t.Context(), bson.D{}, options.Find().SetLimit(5).SetBatchSize(5))
		t.ok(err)
		if n := cur.RemainingBatchLength(); n != 5 || cur.ID() != 0 {
			t.Errorf("%d documents, cursor %d", n, cur.ID())
		}
	}},
	{name: "skip and limit", source: manual + "reference/command/find/", check: func(t *trial) {
		t.many(10)
		t.is(t.all(t.coll, `{}`, options.Find().SetSort(t.doc(`{"_id":1}`)).SetSkip(3).SetLimit(2).SetProjection(t.doc(`{"_id":1}`))),
			`{"_id":3},{"_id":4}`)
	}},
	{name: "a cursor that was closed is not found", source: manual + "reference/command/killCursors/", check: func(t *trial) {
		t.many(10)
		cur, err := t.coll.Find(t.Context(), bson.D{}, options.Find().SetBatchSize(2))
		t.ok(err)
		id := cur.ID()
		t.ok(cur.Close(t.Context()))
		err = t.db.RunCommand(t.Context(), bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}}).Err()
		t.refused(err, 43, fmt.Sprint(id))
	}},
	{name: "a find on no collection finds nothing", source: manual + "reference/command/find/", check: func(t *trial) {
		t.is(t.all(t.db.Collection("nope"), `{}`), ``)
	}},
	{name: "counts of documents and of the collection", source: manual + "reference/method/db.collection.countDocuments/",
		check: func(t *trial) {
			t.many(25)
			some, err := t.coll.CountDocuments(t.Context(), t.doc(`{"a":3}`), options.Count().SetLimit(2))
			t.ok(err)
			if all, err := t.coll.EstimatedDocumentCount(t.Context()); err != nil || some != 2 || all != 25 {
				t.Errorf("%d and %d, %v", some, all, err)
			}
		}},
	{name: "collections and databases are listed by name", source: manual + "reference/command/listCollections/", check: func(t *trial) {
		t.insert(`{"_id":1}`)
		names, err := t.db.ListCollectionNames(t.Context(), bson.D{})
		t.ok(err)
		dbs, err := t.db.Client().ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: t.db.Name()}})
		if err != nil || len(names) != 1 || names[0] != "c" || len(dbs) != 1 {
			t.Errorf("%v, %v, %v", names, dbs, err)
		}
	}},
	{name: "dropping what is not there is no error to a driver", source: manual + "reference/command/drop/", check: func(t *trial) {
		t.ok(t.db.Collection("nope").Drop(t.Context()))
		t.ok(t.db.Drop(t.Context()))
	}},
	{name: "a collection that is renamed takes its documents and indexes with it, and the place of another one",
		source: manual + "reference/command/renameCollection/", check: func(t *trial) {
			t.insert(`{"_id":1}`)
			other := t.db.Collection("other")
			_, err := other.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: t.doc(`{"a":1}`), Options: options.Index().SetUnique(true)})
			t.ok(err)
			_, err = other.InsertOne(t.Context(), t.doc(`{"_id":2,"a":5}`))
			t.ok(err)
			rename := func(dropTarget bool) error {
				return t.db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "renameCollection", Value: t.db.Name() + ".other"},
					{Key: "to", Value: t.db.Name() + ".c"}, {Key: "dropTarget", Value: dropTarget}}).Err()
			}
			t.refused(rename(false), 48, "")
			t.is(t.stored(), `{"_id":1}`)
			t.ok(rename(true))
			t.is(t.stored(), `{"_id":2,"a":5}`)
			t.refused(rename(true), 26, "")
			_, err = t.coll.InsertOne(t.Context(), t.doc(`{"_id":3,"a":5}`))
			t.refused(err, 11000, "")
			names, err := t.db.ListCollectionNames(t.Context(), bson.D{})
			if err != nil || len(names) != 1 {
				t.Errorf("%v, %v", names, err)
			}
		}},
	{name: "a capped collection keeps the newest", source: manual + "core/capped-collections/", check: func(t *trial) {
		t.capped(1<<20, 3)
		t.insert(`{"_id":1},{"_id":2},{"_id":3},{"_id":4}`)
		t.is(t.stored(), `{"_id":2},{"_id":3},{"_id":4}`)
	}},
	{name: "a capped collection is bounded in bytes", source: manual + "core/capped-collections/", check: func(t *trial) {
		t.capped(4096, 0)
		for i := range 20 {
			_, err := t.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}, {Key: "x", Value: strings.Repeat("x", 1000)}})
			t.ok(err)
		}
		n, err := t.coll.CountDocuments(t.Context(), bson.D{})
		if err != nil || n < 2 || n > 4 {
			t.Errorf("%d documents of 1 KB in 4 KB, %v", n, err)
		}
	}},
	{name: "a capped collection has its documents in the order of insertion", source: manual + "core/capped-collections/",
		check: func(t *trial) {
			t.capped(1<<20, 0)
			t.insert(`{"_id":3},{"_id":1},{"_id":2}`)
			t.is(t.all(t.coll, `{}`), `{"_id":3},{"_id":1},{"_id":2}`)
			t.is(t.all(t.coll, `{}`, options.Find().SetSort(t.doc(`{"$natural":-1}`))), `{"_id":2},{"_id":1},{"_id":3}`)
		}},
	{name: "a capped collection is listed as one", source: manual + "reference/command/listCollections/", check: func(t *trial) {
		t.capped(8192, 5)
		specs, err := t.db.ListCollectionSpecifications(t.Context(), t.doc(`{"name":"c"}`))
		t.ok(err)
		if len(specs) != 1 {
			t.Fatalf("%d collections", len(specs))
		}
		t.is(show(specs[0].Options), `{"capped":true,"size":8192,"max":5}`)
	}},
	{name: "a tailable cursor goes on with what comes", source: manual + "core/tailable-cursors/", check: func(t *trial) {
		t.capped(1<<20, 0)
		t.insert(`{"_id":1}`)
		cur := t.tail()
		for _, want := range []string{`{"_id":1}`, `{"_id":2}`, `{"_id":3}`} {
			if want != `{"_id":1}` {
				t.insert(want)
			}
			if !cur.Next(t.Context()) {
				t.Fatal(cur.Err())
			}
			t.is(show(cur.Current), want)
		}
	}},
	{name: "a tailable cursor that awaits data waits as long as it was told", source: manual + "reference/command/getMore/",
		check: func(t *trial) {
			t.capped(1<<20, 0)
			t.insert(`{"_id":1}`)
			cur := t.tail()
			cur.Next(t.Context())
			begin := time.Now()
			if cur.TryNext(t.Context()) || cur.Err() != nil || cur.ID() == 0 {
				t.Errorf("%v", cur.Err())
			}
			if took := time.Since(begin); took < 900*time.Millisecond || took > 5*time.Second {
				t.Errorf("it waited %v", took)
			}
		}},
	{name: "a tailable cursor is woken by an insert", source: manual + "core/tailable-cursors/", check: func(t *trial) {
		t.capped(1<<20, 0)
		t.insert(`{"_id":1}`)
		o := options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(30 * time.Second)
		cur, err := t.coll.Find(t.Context(), bson.D{}, o)
		t.ok(err)
		defer cur.Close(t.Context())
		cur.Next(t.Context())
		inserted := make(chan error, 1)
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			_, err := t.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 2}})
			inserted <- err
		}()
		if !cur.Next(t.Context()) || time.Since(begin) > 15*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), cur.Err())
		}
		t.ok(<-inserted)
	}},
	{name: "a tailable cursor on an empty collection is dead", source: manual + "core/tailable-cursors/", check: func(t *trial) {
		t.capped(1<<20, 0)
		if cur := t.tail(); cur.ID() != 0 {
			t.Errorf("its id is %d", cur.ID())
		}
	}},
	{name: "a tailable cursor whose place was overwritten ends", source: manual + "core/tailable-cursors/", check: func(t *trial) {
		t.capped(1<<20, 2)
		t.insert(`{"_id":1}`)
		cur := t.tail()
		cur.Next(t.Context())
		t.insert(`{"_id":2},{"_id":3},{"_id":4}`)
		if cur.Next(t.Context()) {
			t.Errorf("it goes on with %v", cur.Current)
		}
		t.refused(cur.Err(), 136, "")
	}},
	{name: "dropping a collection ends its cursors", source: manual + "reference/command/drop/", check: func(t *trial) {
		t.many(10)
		cur, err := t.coll.Find(t.Context(), bson.D{}, options.Find().SetBatchSize(2))
		t.ok(err)
		t.ok(t.coll.Drop(t.Context()))
		for cur.Next(t.Context()) {
			if n, _ := cur.Current.Lookup("_id").AsInt64OK(); n > 1 {
				t.Fatalf("it goes on with %v", cur.Current)
			}
		}
		if cur.Err() == nil {
			t.Error("there is no error")
		}
	}},
}

var indexes = []fact{
	{name: "the index on _id is there", source: manual + "indexes/", check: func(t *trial) {
		t.insert(`{"_id":1}`)
		specs, err := t.coll.Indexes().ListSpecifications(t.Context())
		t.ok(err)
		if len(specs) != 1 || specs[0].Name != "_id_" || show(specs[0].KeysDocument) != `{"_id":1}` {
			t.Errorf("%+v", specs)
		}
	}},
	{name: "an index is listed with its options", source: manual + "reference/command/listIndexes/", check: func(t *trial) {
		_, err := t.coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: t.doc(`{"a":1,"b":-1}`),
			Options: options.Index().SetUnique(true).SetSparse(true)})
		t.ok(err)
		specs, err := t.coll.Indexes().ListSpecifications(t.Context())
		t.ok(err)
		if len(specs) != 2 || specs[1].Name != "a_1_b_-1" || specs[1].Unique == nil || specs[1].Sparse == nil {
			t.Errorf("%+v", specs)
		} else if !*specs[1].Unique || !*specs[1].Sparse {
			t.Errorf("%+v", specs)
		}
	}},
	{name: "creating the same index again does nothing", source: manual + "reference/command/createIndexes/", check: func(t *trial) {
		const create = `{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a"}]}`
		first, again := t.command(create), t.command(create)
		if first.Lookup("numIndexesAfter").AsInt64() != 2 || again.Lookup("numIndexesBefore").AsInt64() != 2 ||
			again.Lookup("numIndexesAfter").AsInt64() != 2 {
			t.Errorf("%s, %s", first, again)
		}
		if note, _ := again.Lookup("note").StringValueOK(); note != "all indexes already exist" {
			t.Errorf("it says %q", note)
		}
	}},
	{name: "keys the other way round are another index", source: manual + "reference/command/createIndexes/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a"},{"key":{"a":-1},"name":"b"}]}`)
	}},
	{name: "an index that was dropped lets duplicates in", source: manual + "reference/command/dropIndexes/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`)
		t.insert(`{"_id":1,"a":1}`)
		t.ok(t.coll.Indexes().DropOne(t.Context(), "a"))
		t.insert(`{"_id":2,"a":1}`)
	}},
	{name: "a sparse unique index lets any number without the field in", source: manual + "core/index-sparse/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true,"sparse":true}]}`)
		t.insert(`{"_id":1},{"_id":2},{"_id":3,"a":1}`)
		t.is(t.all(t.coll, `{}`, options.Find().SetSort(t.doc(`{"a":1}`)).SetProjection(t.doc(`{"_id":1}`)).SetLimit(3)),
			`{"_id":1},{"_id":2},{"_id":3}`)
	}},
	{name: "a sparse index that is hinted at leaves out what it has not", source: manual + "core/index-sparse/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","sparse":true}]}`)
		t.insert(`{"_id":1},{"_id":3,"a":1}`)
		t.is(t.all(t.coll, `{}`, options.Find().SetHint("a")), `{"_id":3,"a":1}`)
	}},
	{name: "a partial unique index is about what its filter selects", source: manual + "core/index-partial/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true,"partialFilterExpression":{"live":true}}]}`)
		t.insert(`{"_id":1,"a":1},{"_id":2,"a":1},{"_id":3,"a":1,"live":true}`)
		_, err := t.coll.InsertOne(t.Context(), t.doc(`{"_id":4,"a":1,"live":true}`))
		t.refused(err, 11000, "index: a")
		t.is(t.all(t.coll, `{"a":1}`, options.Find().SetSort(t.doc(`{"_id":1}`)).SetProjection(t.doc(`{"_id":1}`))),
			`{"_id":1},{"_id":2},{"_id":3}`)
	}},
	{name: "a unique index on an array is about its elements", source: manual + "core/index-unique/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`)
		t.insert(`{"_id":1,"a":[1,2]},{"_id":2,"a":[3,3]}`)
		_, err := t.coll.InsertOne(t.Context(), t.doc(`{"_id":3,"a":[2]}`))
		t.refused(err, 11000, "dup key: { a: 2 }")
	}},
	{name: "a hinted index has documents in its order", source: manual + "reference/method/cursor.hint/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a"}]}`)
		t.insert(`{"_id":1,"a":3},{"_id":2,"a":1},{"_id":3,"a":2}`)
		t.is(t.all(t.coll, `{"a":{"$gt":0}}`, options.Find().SetHint(t.doc(`{"a":1}`)).SetProjection(t.doc(`{"_id":1}`))),
			`{"_id":2},{"_id":3},{"_id":1}`)
	}},
	{name: "$in on a hinted index gives its values in the index's order", source: measured, check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"topic":1,"partition":1,"seq":1},"name":"seq","unique":true}]}`)
		t.insert(`{"_id":1,"topic":"t","partition":3,"seq":7},{"_id":2,"topic":"t","partition":3,"seq":6},` +
			`{"_id":3,"topic":"t","partition":-1,"seq":99},` +
			`{"_id":4,"topic":"t","partition":2,"seq":8},{"_id":5,"topic":"t","partition":3,"seq":5}`)
		o := options.Find().SetHint(t.doc(`{"topic":1,"partition":1,"seq":1}`)).SetProjection(t.doc(`{"_id":1}`))
		t.is(t.all(t.coll, `{"topic":"t","partition":{"$in":[3,-1]},"seq":{"$gt":5}}`, o), `{"_id":3},{"_id":2},{"_id":1}`)
	}},
	{name: "TTL removes what has expired", source: manual + "core/index-ttl/", needs: patience, check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"at":1},"name":"at","expireAfterSeconds":60}]}`)
		_, err := t.coll.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: 1}, {Key: "at", Value: time.Now()}},
			bson.D{{Key: "_id", Value: 2}, {Key: "at", Value: time.Now().Add(time.Hour)}},
			bson.D{{Key: "_id", Value: 3}, {Key: "at", Value: "never"}}, bson.D{{Key: "_id", Value: 4}}})
		t.ok(err)
		time.Sleep(59 * time.Second)
		if n, err := t.coll.CountDocuments(t.Context(), bson.D{}); err != nil || n != 4 {
			t.Errorf("%d documents, %v", n, err)
		}
		time.Sleep(2 * time.Minute)
		t.is(t.all(t.coll, `{}`, options.Find().SetSort(t.doc(`{"_id":1}`)).SetProjection(t.doc(`{"_id":1}`))), `{"_id":2},{"_id":3},{"_id":4}`)
	}},
	{name: "TTL of 0 goes by the date itself", source: manual + "tutorial/expire-data/", needs: patience, check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"at":1},"name":"at","expireAfterSeconds":0}]}`)
		_, err := t.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "at", Value: time.Now().Add(5 * time.Minute)}})
		t.ok(err)
		time.Sleep(4 * time.Minute)
		if n, err := t.coll.CountDocuments(t.Context(), bson.D{}); err != nil || n != 1 {
			t.Errorf("%d documents, %v", n, err)
		}
		time.Sleep(3 * time.Minute)
		t.is(t.stored(), ``)
	}},
}
