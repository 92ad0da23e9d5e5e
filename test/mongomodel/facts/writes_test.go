package facts

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// upserts says what is stored after an upsert that found nothing.
func upserts(name, filter, update, want string) fact {
	return fact{name: name, source: manual + "reference/method/db.collection.update/", check: func(t *trial) {
		got, err := t.coll.UpdateOne(t.Context(), t.doc(filter), t.doc(update), options.UpdateOne().SetUpsert(true))
		t.ok(err)
		if got.MatchedCount != 0 || got.UpsertedCount != 1 {
			t.Errorf("%+v", got)
		}
		t.is(t.stored(), want)
	}}
}

var writes = []fact{
	{name: "an update says what it matched and what it changed", source: manual + "reference/command/update/", check: func(t *trial) {
		t.insert(`{"_id":1,"a":1},{"_id":2,"a":2}`)
		got, err := t.coll.UpdateMany(t.Context(), bson.D{}, t.doc(`{"$set":{"a":1}}`))
		t.ok(err)
		if got.MatchedCount != 2 || got.ModifiedCount != 1 {
			t.Errorf("%+v", got)
		}
	}},
	{name: "an update of one changes one", source: manual + "reference/method/db.collection.updateOne/", check: func(t *trial) {
		t.insert(`{"_id":1},{"_id":2}`)
		got, err := t.coll.UpdateOne(t.Context(), bson.D{}, t.doc(`{"$set":{"a":1}}`))
		t.ok(err)
		n, err := t.coll.CountDocuments(t.Context(), t.doc(`{"a":1}`))
		if err != nil || n != 1 || got.ModifiedCount != 1 {
			t.Errorf("%d are changed, %+v, %v", n, got, err)
		}
	}},
	{name: "an update of nothing matches nothing", source: manual + "reference/method/db.collection.updateOne/", check: func(t *trial) {
		got, err := t.coll.UpdateOne(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$set":{"a":1}}`))
		if err != nil || got.MatchedCount != 0 || got.UpsertedCount != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}},
	{name: "a replacement keeps nothing but the _id", source: manual + "reference/method/db.collection.replaceOne/", check: func(t *trial) {
		t.insert(`{"_id":1,"a":1,"b":2}`)
		_, err := t.coll.ReplaceOne(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"c":3}`))
		t.ok(err)
		t.is(t.stored(), `{"_id":1,"c":3}`)
	}},
	{name: "a delete says how many it removed", source: manual + "reference/command/delete/", check: func(t *trial) {
		t.insert(`{"_id":1},{"_id":2},{"_id":3}`)
		one, err := t.coll.DeleteOne(t.Context(), bson.D{})
		t.ok(err)
		rest, err := t.coll.DeleteMany(t.Context(), bson.D{})
		if err != nil || one.DeletedCount != 1 || rest.DeletedCount != 2 {
			t.Errorf("%+v, %+v, %v", one, rest, err)
		}
	}},
	upserts("an upsert has the filter's equalities and the update", `{"_id":1,"a":2,"b":{"$gt":5}}`, `{"$set":{"c":3}}`,
		`{"_id":1,"a":2,"c":3}`),
	upserts("an upsert does $setOnInsert", `{"_id":1}`, `{"$inc":{"n":1},"$setOnInsert":{"a":1}}`, `{"_id":1,"a":1,"n":1}`),
	upserts("an upsert takes equalities from $and", `{"$and":[{"_id":1},{"a.b":{"$eq":2}}]}`, `{"$set":{"c":1}}`,
		`{"_id":1,"a":{"b":2},"c":1}`),
	{name: "an upsert makes an _id where there is none", source: manual + "reference/method/db.collection.update/", check: func(t *trial) {
		got, err := t.coll.UpdateOne(t.Context(), t.doc(`{"a":1}`), t.doc(`{"$set":{"b":1}}`), options.UpdateOne().SetUpsert(true))
		t.ok(err)
		if _, ok := got.UpsertedID.(bson.ObjectID); !ok {
			t.Errorf("%v", got.UpsertedID)
		}
	}},
	{name: "an upsert by a replacement takes the _id of the filter alone", source: manual + "reference/method/db.collection.replaceOne/",
		check: func(t *trial) {
			_, err := t.coll.ReplaceOne(t.Context(), t.doc(`{"_id":1,"a":5}`), t.doc(`{"b":1}`), options.Replace().SetUpsert(true))
			t.ok(err)
			t.is(t.stored(), `{"_id":1,"b":1}`)
		}},
	{name: "an upsert that its filter keeps from the document that is there is a duplicate",
		source: manual + "reference/method/db.collection.update/", check: func(t *trial) {
			t.insert(`{"_id":1,"fence":5}`)
			_, err := t.coll.UpdateOne(t.Context(), t.doc(`{"_id":1,"fence":{"$not":{"$gt":3}}}`), t.doc(`{"$set":{"fence":3}}`),
				options.UpdateOne().SetUpsert(true))
			t.refused(err, 11000, "_id_")
			t.is(t.stored(), `{"_id":1,"fence":5}`)
		}},
	{name: "a duplicate names collection, index and key", source: measured, check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1,"b":1},"name":"a_1_b_1","unique":true}]}`)
		t.insert(`{"_id":1,"a":"x","b":2}`)
		_, err := t.coll.InsertOne(t.Context(), t.doc(`{"_id":2,"a":"x","b":2}`))
		t.refused(err, 11000, "E11000 duplicate key error collection: "+t.db.Name()+`.c index: a_1_b_1 dup key: { a: "x", b: 2 }`)
	}},
	{name: "a duplicate has the key's pattern and value", source: measured, check: func(t *trial) {
		t.insert(`{"_id":"x"}`)
		_, err := t.coll.InsertOne(t.Context(), t.doc(`{"_id":"x"}`))
		var w mongo.WriteException
		if !errors.As(err, &w) || len(w.WriteErrors) != 1 {
			t.Fatalf("%v", err)
		}
		t.is(show(w.WriteErrors[0].Raw.Lookup("keyPattern").Document())+","+show(w.WriteErrors[0].Raw.Lookup("keyValue").Document()),
			`{"_id":1},{"_id":"x"}`)
	}},
	{name: "a unique index has one document without the field", source: manual + "core/index-unique/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`)
		t.insert(`{"_id":1}`)
		_, err := t.coll.InsertOne(t.Context(), t.doc(`{"_id":2}`))
		t.refused(err, 11000, "dup key: { a: null }")
	}},
	{name: "an ordered insert ends at the first error", source: manual + "reference/command/insert/", check: func(t *trial) {
		t.insert(`{"_id":2}`)
		_, err := t.coll.InsertMany(t.Context(), t.docs(`{"_id":1},{"_id":2},{"_id":3}`))
		var b mongo.BulkWriteException
		if !errors.As(err, &b) || len(b.WriteErrors) != 1 || b.WriteErrors[0].Index != 1 {
			t.Errorf("%v", err)
		}
		t.is(t.stored(), `{"_id":1},{"_id":2}`)
	}},
	{name: "an unordered insert goes on after errors", source: manual + "reference/command/insert/", check: func(t *trial) {
		t.insert(`{"_id":2},{"_id":3}`)
		_, err := t.coll.InsertMany(t.Context(), t.docs(`{"_id":1},{"_id":2},{"_id":3},{"_id":4}`), options.InsertMany().SetOrdered(false))
		var b mongo.BulkWriteException
		if !errors.As(err, &b) || len(b.WriteErrors) != 2 || b.WriteErrors[0].Index != 1 || b.WriteErrors[1].Index != 2 {
			t.Errorf("%v", err)
		}
		t.is(t.stored(), `{"_id":1},{"_id":2},{"_id":3},{"_id":4}`)
	}},
	{name: "an ordered bulk write ends at the first error", source: manual + "core/bulk-write-operations/", check: func(t *trial) {
		t.insert(`{"_id":1,"a":"x"}`)
		got, err := t.coll.BulkWrite(t.Context(), bulk(t))
		t.refused(err, 14, "$inc")
		if got == nil || got.InsertedCount != 1 || got.DeletedCount != 0 {
			t.Errorf("%+v", got)
		}
	}},
	{name: "an unordered bulk write goes on after errors", source: manual + "core/bulk-write-operations/", check: func(t *trial) {
		t.insert(`{"_id":1,"a":"x"}`)
		got, err := t.coll.BulkWrite(t.Context(), bulk(t), options.BulkWrite().SetOrdered(false))
		t.refused(err, 14, "$inc")
		if got == nil || got.InsertedCount != 1 || got.DeletedCount != 1 {
			t.Errorf("%+v", got)
		}
	}},
	{name: "an ordered bulk write does its statements in order", source: manual + "core/bulk-write-operations/", check: func(t *trial) {
		_, err := t.coll.BulkWrite(t.Context(), []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(t.doc(`{"_id":1,"n":1}`)),
			mongo.NewUpdateOneModel().SetFilter(t.doc(`{"_id":1}`)).SetUpdate(t.doc(`{"$set":{"n":5}}`)),
			mongo.NewUpdateOneModel().SetFilter(t.doc(`{"_id":1}`)).SetUpdate(t.doc(`{"$inc":{"n":1}}`)),
		})
		t.ok(err)
		t.is(t.stored(), `{"_id":1,"n":6}`)
	}},
	{name: "an error of a statement undoes nothing of it but its own document", source: manual + "core/write-operations-atomicity/",
		check: func(t *trial) {
			t.insert(`{"_id":1,"a":1},{"_id":2,"a":"x"}`)
			_, err := t.coll.UpdateMany(t.Context(), t.doc(`{"_id":{"$in":[1,2]}}`), t.doc(`{"$inc":{"a":1}}`))
			t.refused(err, 14, "")
			t.is(t.stored(), `{"_id":1,"a":2},{"_id":2,"a":"x"}`)
		}},
	{name: "findAndModify returns the document before", source: manual + "reference/command/findAndModify/", check: func(t *trial) {
		t.insert(`{"_id":1,"n":1}`)
		got, err := t.coll.FindOneAndUpdate(t.Context(), bson.D{}, t.doc(`{"$inc":{"n":1}}`)).Raw()
		t.ok(err)
		t.is(show(got), `{"_id":1,"n":1}`)
		t.is(t.stored(), `{"_id":1,"n":2}`)
	}},
	{name: "findAndModify takes the first in order", source: manual + "reference/command/findAndModify/", check: func(t *trial) {
		t.insert(`{"_id":1,"n":1},{"_id":2,"n":5}`)
		o := options.FindOneAndUpdate().SetSort(t.doc(`{"n":-1}`)).SetProjection(t.doc(`{"n":1,"_id":0}`)).SetReturnDocument(options.After)
		got, err := t.coll.FindOneAndUpdate(t.Context(), bson.D{}, t.doc(`{"$inc":{"n":1}}`), o).Raw()
		t.ok(err)
		t.is(show(got), `{"n":6}`)
	}},
	{name: "findAndModify of nothing gives no document", source: manual + "reference/command/findAndModify/", check: func(t *trial) {
		err := t.coll.FindOneAndUpdate(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$inc":{"n":1}}`)).Err()
		if !errors.Is(err, mongo.ErrNoDocuments) {
			t.Error(err)
		}
	}},
	{name: "findAndModify that upserts gives no document before", source: manual + "reference/command/findAndModify/", check: func(t *trial) {
		err := t.coll.FindOneAndUpdate(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$inc":{"n":1}}`),
			options.FindOneAndUpdate().SetUpsert(true)).Err()
		if !errors.Is(err, mongo.ErrNoDocuments) {
			t.Error(err)
		}
		t.is(t.stored(), `{"_id":1,"n":1}`)
	}},
	{name: "findAndModify that upserts gives the document after", source: manual + "reference/command/findAndModify/", check: func(t *trial) {
		o := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
		got, err := t.coll.FindOneAndUpdate(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$inc":{"n":1}}`), o).Raw()
		t.ok(err)
		t.is(show(got), `{"_id":1,"n":1}`)
	}},
	{name: "findAndModify onto another's key is a duplicate", source: manual + "reference/command/findAndModify/", check: func(t *trial) {
		t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`)
		t.insert(`{"_id":1,"a":1},{"_id":2,"a":2}`)
		t.refused(t.coll.FindOneAndUpdate(t.Context(), t.doc(`{"_id":2}`), t.doc(`{"$set":{"a":1}}`)).Err(), 11000, "dup key: { a: 1 }")
	}},
	{name: "a replacement onto another's key is a duplicate", source: manual + "reference/method/db.collection.replaceOne/",
		check: func(t *trial) {
			t.command(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`)
			t.insert(`{"_id":1,"a":1},{"_id":2,"a":2}`)
			_, err := t.coll.ReplaceOne(t.Context(), t.doc(`{"_id":2}`), t.doc(`{"a":1}`))
			t.refused(err, 11000, "index: a dup key: { a: 1 }")
			t.is(t.stored(), `{"_id":1,"a":1},{"_id":2,"a":2}`)
		}},
	{name: "a document of 16 MB and more is refused", source: manual + "reference/limits/", check: func(t *trial) {
		_, err := t.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "x", Value: strings.Repeat("x", 16<<20)}})
		if err == nil {
			t.Error("it was stored")
		}
		n, err := t.coll.CountDocuments(t.Context(), bson.D{})
		if err != nil || n != 0 {
			t.Errorf("%d documents, %v", n, err)
		}
	}},
	{name: "an update to more than 16 MB is refused", source: manual + "reference/limits/", check: func(t *trial) {
		_, err := t.coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "x", Value: strings.Repeat("x", 10<<20)}})
		t.ok(err)
		_, err = t.coll.UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "y", Value: strings.Repeat("y", 10<<20)}}}})
		t.refused(err, anyCode, "larger than")
	}},
}

// bulk is an insert, an update that is refused of {_id: 1, a: "x"}, and a delete.
func bulk(t *trial) []mongo.WriteModel {
	return []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(t.doc(`{"_id":2}`)),
		mongo.NewUpdateOneModel().SetFilter(t.doc(`{"_id":1}`)).SetUpdate(t.doc(`{"$inc":{"a":1}}`)),
		mongo.NewDeleteOneModel().SetFilter(t.doc(`{"_id":2}`)),
	}
}
