package mongomodel_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// with is a collection as concerns see it.
func with(db *mongo.Database, wc *writeconcern.WriteConcern, rc *readconcern.ReadConcern) *mongo.Collection {
	return db.Collection("events", options.Collection().SetWriteConcern(wc).SetReadConcern(rc))
}

func TestReadsAndWrites(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, _ *mongomodel.Set, db *mongo.Database) {
		c := with(db, writeconcern.Majority(), readconcern.Majority())
		for i := range 250 { // more than one batch
			insert(t, c, i)
		}
		if n := len(find(t, c, bson.D{})); n != 250 {
			t.Errorf("%d documents, want 250", n)
		}
		r, err := c.UpdateMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$lt", Value: 10}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 1}}}})
		if err != nil || r.MatchedCount != 10 || r.ModifiedCount != 10 {
			t.Errorf("update: %+v, %v", r, err)
		}
		up, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "new"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 2}}}},
			options.UpdateOne().SetUpsert(true))
		if err != nil || up.UpsertedID != "new" {
			t.Errorf("upsert: %+v, %v", up, err)
		}
		var d struct{ N int }
		after := options.FindOneAndUpdate().SetReturnDocument(options.After)
		if err := c.FindOneAndUpdate(t.Context(), bson.D{{Key: "_id", Value: "new"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}},
			after).Decode(&d); err != nil || d.N != 3 {
			t.Errorf("findAndModify: %+v, %v", d, err)
		}
		if r, err := c.DeleteMany(t.Context(), bson.D{{Key: "a", Value: 1}}); err != nil || r.DeletedCount != 10 {
			t.Errorf("delete: %+v, %v", r, err)
		}
		if n, err := c.CountDocuments(t.Context(), bson.D{}); err != nil || n != 241 {
			t.Errorf("%d documents are left, %v", n, err)
		}
		if _, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "new"}}); !mongo.IsDuplicateKeyError(err) {
			t.Errorf("inserting the same again: %v", err)
		}
	})
}

func TestWriteConcerns(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		four := with(db, &writeconcern.WriteConcern{W: 4}, readconcern.Local())
		if _, err := four.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "four"}}); codeOf(err) != 100 {
			t.Errorf("w: 4 of three members: %v", err)
		}
		if len(find(t, four, bson.D{})) != 1 {
			t.Error("what w: 4 was said of is not there")
		}
		insert(t, with(db, &writeconcern.WriteConcern{W: 3}, readconcern.Local()), "three")
		s.Lag(1, time.Minute)
		s.Lag(2, 2*time.Minute)
		begin := time.Now()
		insert(t, with(db, writeconcern.W1(), readconcern.Local()), "one")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("w: 1 took %v", took)
		}
		insert(t, with(db, writeconcern.Majority(), readconcern.Local()), "majority")
		if took := time.Since(begin); took < time.Minute || took > 61*time.Second {
			t.Errorf("majority took %v", took)
		}
		err := db.RunCommand(t.Context(), bson.D{{Key: "insert", Value: "events"},
			{Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "late"}}}},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 3}, {Key: "wtimeout", Value: 1000}}}}).Err()
		if codeOf(err) != 64 {
			t.Errorf("wtimeout: %v", err)
		}
	})
}

func TestReadConcerns(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		insert(t, with(db, writeconcern.Majority(), readconcern.Local()), "old")
		s.Lag(1, time.Minute)
		s.Lag(2, time.Minute)
		local, majority := with(db, writeconcern.W1(), readconcern.Local()), with(db, writeconcern.W1(), readconcern.Majority())
		session, err := db.Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(t.Context())
		causal := mongo.NewSessionContext(t.Context(), session)
		if _, err := majority.InsertOne(causal, bson.D{{Key: "_id", Value: "new"}}); err != nil {
			t.Fatal(err)
		}
		if n := len(find(t, local, bson.D{})); n != 2 {
			t.Errorf("a local read sees %d documents", n)
		}
		if n := len(find(t, majority, bson.D{})); n != 1 {
			t.Errorf("a majority read sees %d documents", n)
		}
		begin := time.Now()
		n, err := majority.CountDocuments(causal, bson.D{})
		if err != nil || n != 2 || time.Since(begin) != time.Minute {
			t.Errorf("a causal majority read sees %d documents after %v, %v", n, time.Since(begin), err)
		}
	})
}

// TestADuplicateIsToldOnceAMajorityHasIt waits with the answer for the document that was there.
func TestADuplicateIsToldOnceAMajorityHasIt(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		s.Lag(1, time.Minute)
		s.Lag(2, time.Minute)
		insert(t, with(db, writeconcern.W1(), readconcern.Local()), "a")
		begin := time.Now()
		_, err := with(db, writeconcern.Majority(), readconcern.Local()).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "a"}})
		if !mongo.IsDuplicateKeyError(err) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestExpiredDocumentsGo(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, _ *mongomodel.Set, db *mongo.Database) {
		c := db.Collection("events")
		_, err := c.Indexes().CreateOne(t.Context(),
			mongo.IndexModel{Keys: bson.D{{Key: "at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(30)})
		require.NoError(t, err)
		if _, err := c.InsertOne(t.Context(), bson.D{{Key: "at", Value: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		if n := len(find(t, c, bson.D{})); n != 0 {
			t.Errorf("%d documents are left", n)
		}
	})
}

func TestATailableCursorWaitsAndSurvivesAStepdown(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		require.NoError(t, db.CreateCollection(t.Context(), "signals", options.CreateCollection().SetCapped(true).SetSizeInBytes(4096)))
		c := db.Collection("signals")
		insert(t, c, "first")
		cur, err := c.Find(t.Context(), bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(2*time.Second))
		require.NoError(t, err)
		defer cur.Close(context.Background())
		if !cur.TryNext(t.Context()) {
			t.Fatal("the first document is not there", cur.Err())
		}
		begin := time.Now()
		if cur.TryNext(t.Context()) || cur.Err() != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("waited %v for nothing, %v", time.Since(begin), cur.Err())
		}
		time.AfterFunc(time.Second, func() { s.StepDown(0) })
		var inserted sync.WaitGroup
		defer inserted.Wait() // its answer comes after the document can be read
		inserted.Go(func() {
			time.Sleep(3 * time.Second)
			if _, err := c.InsertOne(context.Background(), bson.D{{Key: "_id", Value: "second"}}); err != nil {
				t.Error("inserting the second:", err)
			}
		})
		for range 5 {
			if cur.TryNext(t.Context()) {
				return
			}
		}
		t.Error("the document after the stepdown never came", cur.Err())
	})
}
