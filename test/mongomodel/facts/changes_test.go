package facts

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// watch opens a change stream on the collection.
func (t *trial) watch(pipeline string, o ...options.Lister[options.ChangeStreamOptions]) *mongo.ChangeStream {
	t.Helper()
	s, err := t.coll.Watch(t.Context(), t.docs(pipeline), append(o, options.ChangeStream().SetMaxAwaitTime(100*time.Millisecond))...)
	t.ok(err)
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	return s
}

// told reads the next n changes, without what differs from one run to the next.
func (t *trial) told(s *mongo.ChangeStream, n int) string {
	t.Helper()
	var docs []bson.D
	for range n {
		if !s.Next(t.Context()) {
			t.Fatalf("the stream has ended: %v", s.Err())
		}
		d := bson.D{}
		for _, name := range []string{"operationType", "fullDocument", "documentKey"} {
			if v, err := s.Current.LookupErr(name); err == nil {
				d = append(d, bson.E{Key: name, Value: v})
			}
		}
		if s.Current.Lookup("operationType").StringValue() == "update" {
			for _, name := range []string{"updatedFields", "removedFields"} {
				d = append(d, bson.E{Key: name, Value: s.Current.Lookup("updateDescription", name)})
			}
		}
		docs = append(docs, d)
	}
	return show(docs...)
}

// change inserts, updates, replaces and deletes a document with an _id.
func (t *trial) change(ctx context.Context, id int) {
	t.Helper()
	byID := bson.D{{Key: "_id", Value: id}}
	_, err := t.coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "a", Value: 1}, {Key: "b", Value: 1}})
	t.ok(err)
	_, err = t.coll.UpdateOne(ctx, byID, t.doc(`{"$set":{"a":2},"$unset":{"b":1}}`))
	t.ok(err)
	_, err = t.coll.ReplaceOne(ctx, byID, t.doc(`{"c":3}`))
	t.ok(err)
	_, err = t.coll.DeleteOne(ctx, byID)
	t.ok(err)
}

const changesOfSeven = `{"operationType":"insert","fullDocument":{"_id":7,"a":1,"b":1},"documentKey":{"_id":7}},
	{"operationType":"update","documentKey":{"_id":7},"updatedFields":{"a":2},"removedFields":["b"]},
	{"operationType":"replace","fullDocument":{"_id":7,"c":3},"documentKey":{"_id":7}},
	{"operationType":"delete","documentKey":{"_id":7}}`

const streams = manual + "changeStreams/"

var followed = []fact{
	{name: "a change stream tells of every kind of write", source: manual + "reference/change-events/", check: func(t *trial) {
		t.insert(`{"_id":1}`)
		s := t.watch(``)
		t.change(t.Context(), 7)
		t.is(t.told(s, 4), changesOfSeven)
	}},
	{name: "a change stream tells nothing of writes that changed nothing", source: streams, check: func(t *trial) {
		t.insert(`{"_id":1,"a":1}`)
		s := t.watch(``)
		_, err := t.coll.UpdateOne(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$set":{"a":1}}`))
		t.ok(err)
		t.insert(`{"_id":2}`)
		t.is(t.told(s, 1), `{"operationType":"insert","fullDocument":{"_id":2},"documentKey":{"_id":2}}`)
	}},
	{name: "a change stream's stages select changes", source: streams + "#modify-change-stream-output", check: func(t *trial) {
		s := t.watch(`{"$match":{"$or":[{"operationType":"delete"},{"updateDescription.updatedFields.a":2}]}}`)
		t.change(t.Context(), 7)
		t.is(t.told(s, 2), `{"operationType":"update","documentKey":{"_id":7},"updatedFields":{"a":2},"removedFields":["b"]},
			{"operationType":"delete","documentKey":{"_id":7}}`)
	}},
	{name: "updateLookup gives the document as it is now, or null", source: streams + "#lookup-full-document-for-update-operations",
		check: func(t *trial) {
			t.insert(`{"_id":1,"a":1},{"_id":2}`)
			s := t.watch(`{"$match":{"operationType":"update"}}`, options.ChangeStream().SetFullDocument(options.UpdateLookup))
			for _, u := range []string{`{"$set":{"a":2}}`, `{"$set":{"a":3}}`} {
				_, err := t.coll.UpdateMany(t.Context(), t.doc(`{}`), t.doc(u))
				t.ok(err)
			}
			_, err := t.coll.DeleteOne(t.Context(), t.doc(`{"_id":2}`))
			t.ok(err)
			t.is(t.told(s, 4), `
			{"operationType":"update","fullDocument":{"_id":1,"a":3},"documentKey":{"_id":1},"updatedFields":{"a":2},"removedFields":[]},
			{"operationType":"update","fullDocument":null,"documentKey":{"_id":2},"updatedFields":{"a":2},"removedFields":[]},
			{"operationType":"update","fullDocument":{"_id":1,"a":3},"documentKey":{"_id":1},"updatedFields":{"a":3},"removedFields":[]},
			{"operationType":"update","fullDocument":null,"documentKey":{"_id":2},"updatedFields":{"a":3},"removedFields":[]}`)
		}},
	{name: "a change stream tells of a transaction's writes once it commits", source: streams + "#transactions", check: func(t *trial) {
		t.insert(`{"_id":1}`)
		s := t.watch(``)
		for _, commit := range []bool{false, true} {
			session, err := t.db.Client().StartSession()
			t.ok(err)
			t.ok(session.StartTransaction())
			t.change(mongo.NewSessionContext(t.Context(), session), 7)
			if s.TryNext(t.Context()) {
				t.Errorf("%s before the commit", s.Current)
			}
			if commit {
				t.ok(session.CommitTransaction(t.Context()))
			} else {
				t.ok(session.AbortTransaction(t.Context()))
			}
			session.EndSession(t.Context())
		}
		t.is(t.told(s, 4), changesOfSeven)
	}},
	{name: "a change stream is resumed right behind a change", source: streams + "#resume-a-change-stream", check: func(t *trial) {
		s := t.watch(``)
		t.change(t.Context(), 6)
		t.change(t.Context(), 7)
		t.told(s, 4)
		token := s.ResumeToken()
		t.is(t.told(t.watch(``, options.ChangeStream().SetResumeAfter(token)), 4), changesOfSeven)
		t.is(t.told(t.watch(``, options.ChangeStream().SetStartAfter(token)), 4), changesOfSeven)
	}},
	{name: "a change stream that has told nothing has a token of where it is", source: streams + "#resume-a-change-stream",
		check: func(t *trial) {
			t.insert(`{"_id":1}`)
			s := t.watch(``)
			if s.TryNext(t.Context()) {
				t.Errorf("there is %s", s.Current)
			}
			token := s.ResumeToken()
			t.change(t.Context(), 7)
			t.is(t.told(t.watch(``, options.ChangeStream().SetResumeAfter(token)), 4), changesOfSeven)
		}},
	{name: "dropping the collection ends a change stream", source: manual + "reference/change-events/invalidate/", check: func(t *trial) {
		t.insert(`{"_id":1}`)
		s := t.watch(``)
		t.ok(t.coll.Drop(t.Context()))
		t.is(t.told(s, 2), `{"operationType":"drop"},{"operationType":"invalidate"}`)
		if s.Next(t.Context()) || s.Err() != nil {
			t.Errorf("after the end %s, %v", s.Current, s.Err())
		}
	}},
	{name: "a change stream is resumed after a failover", source: streams, needs: faults, check: func(t *trial) {
		s := t.watch(``)
		t.change(t.Context(), 6)
		t.told(s, 4)
		t.model.Kill(t.model.Primary())
		time.Sleep(time.Minute)
		t.change(t.Context(), 7)
		t.is(t.told(t.watch(``, options.ChangeStream().SetResumeAfter(s.ResumeToken())), 4), changesOfSeven)
	}},
	{name: "a change stream tells of nothing that a majority has not", source: streams, needs: faults, check: func(t *trial) {
		t.insert(`{"_id":1}`)
		s := t.watch(``)
		t.model.Isolate(t.model.Primary())
		_, err := t.with(writeconcern.W1(), nil).InsertOne(t.Context(), t.doc(`{"_id":2}`))
		t.ok(err)
		if s.TryNext(t.Context()) {
			t.Errorf("there is %s", s.Current)
		}
	}},
	{name: "a place that the oplog has left is an error", source: streams + "#resume-a-change-stream", needs: faults, check: func(t *trial) {
		s := t.watch(``)
		t.change(t.Context(), 6)
		t.told(s, 1)
		token := s.ResumeToken()
		t.change(t.Context(), 7)
		t.model.ForgetOplog()
		_, err := t.coll.Watch(t.Context(), bson.A{}, options.ChangeStream().SetResumeAfter(token))
		t.refused(err, 286, "resume point")
		var oldest struct{ TS bson.Timestamp }
		t.ok(t.db.Client().Database("local").Collection("oplog.rs").FindOne(t.Context(), bson.D{},
			options.FindOne().SetSort(t.doc(`{"$natural":1}`))).Decode(&oldest))
		if oldest.TS.T == 0 {
			t.Error("the oldest entry has no time")
		}
	}},
}
