package mongomodel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

var one = bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}

// once is a fault for the first of the commands of a name.
func once(command string, f mongomodel.Fault) func(mongomodel.Request) mongomodel.Fault {
	var done atomic.Bool
	return func(r mongomodel.Request) mongomodel.Fault {
		if r.Command == command && done.CompareAndSwap(false, true) {
			return f
		}
		return mongomodel.Fault{}
	}
}

// TestARetriedWriteIsExecutedOnce loses an answer, in one case together with the primary that wrote
// it.
func TestARetriedWriteIsExecutedOnce(t *testing.T) {
	for name, kill := range map[string]bool{"same primary": false, "next primary": true} {
		t.Run(name, func(t *testing.T) {
			var set *mongomodel.Set
			lose := once("update", mongomodel.Fault{LoseAnswer: true})
			o := mongomodel.Options{Fault: func(r mongomodel.Request) mongomodel.Fault {
				f := lose(r)
				if f.LoseAnswer && kill {
					time.AfterFunc(time.Millisecond, func() { set.Kill(0) })
				}
				return f
			}}
			simulate(t, o, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
				set = s
				c := with(db, writeconcern.Majority(), readconcern.Majority())
				insert(t, c, "a")
				if _, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}, one); err != nil {
					t.Fatal(err)
				}
				if n := find(t, c, bson.D{})[0].Lookup("n").AsInt64(); n != 1 {
					t.Errorf("incremented %d times", n)
				}
			})
		})
	}
}

func TestALateWriteIsExecutedAfterItsSenderGaveUp(t *testing.T) {
	simulate(t, mongomodel.Options{Fault: once("delete", mongomodel.Fault{Late: time.Hour, Silent: true})},
		func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
			c := db.Collection("events")
			insert(t, c, "a")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.DeleteMany(ctx, bson.D{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the delete: %v", err)
			}
			if n := len(find(t, c, bson.D{})); n != 1 {
				t.Errorf("%d documents before the delete came", n)
			}
			time.Sleep(time.Hour)
			if n := len(find(t, c, bson.D{})); n != 0 {
				t.Errorf("%d documents after the delete came", n)
			}
		})
}

func TestHalfAnInsert(t *testing.T) {
	simulate(t, mongomodel.Options{Fault: once("insert", mongomodel.Fault{Halt: 2})},
		func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
			c := db.Collection("events")
			err := db.RunCommand(t.Context(), bson.D{{Key: "insert", Value: "events"}, {Key: "documents", Value: bson.A{
				bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "_id", Value: 2}}, bson.D{{Key: "_id", Value: 3}}}}}).Err()
			if !mongo.IsNetworkError(err) {
				t.Fatalf("half an insert: %v", err)
			}
			if n := len(find(t, c, bson.D{})); n != 2 {
				t.Errorf("%d documents are there, want 2", n)
			}
		})
}

func transact(t *testing.T, c *mongo.Client, f func(ctx context.Context, s *mongo.Session)) {
	t.Helper()
	s, err := c.StartSession()
	require.NoError(t, err)
	require.NoError(t, s.StartTransaction())
	f(mongo.NewSessionContext(t.Context(), s), s)
}

func TestTransactions(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		c := with(db, writeconcern.Majority(), readconcern.Majority())
		insert(t, c, "a")
		transact(t, db.Client(), func(ctx context.Context, s *mongo.Session) {
			if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: "b"}}); err != nil {
				t.Fatal(err)
			}
			if n, err := c.CountDocuments(ctx, bson.D{}); err != nil || n != 2 {
				t.Errorf("inside there are %d documents, %v", n, err)
			}
			if n := len(find(t, c, bson.D{})); n != 1 {
				t.Errorf("outside there are %d documents", n)
			}
			require.NoError(t, s.CommitTransaction(ctx))
		})
		if n := len(find(t, c, bson.D{})); n != 2 {
			t.Errorf("after the commit there are %d documents", n)
		}
		transact(t, db.Client(), func(ctx context.Context, s *mongo.Session) {
			if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: "c"}}); err != nil {
				t.Fatal(err)
			}
			require.NoError(t, s.AbortTransaction(ctx))
		})
		if n := len(find(t, c, bson.D{})); n != 2 {
			t.Errorf("after the abort there are %d documents", n)
		}
	})
}

// TestAnAbandonedTransactionHoldsItsWrites has another transaction conflict with it, and a plain
// write wait for its end.
func TestAnAbandonedTransactionHoldsItsWrites(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		c := with(db, writeconcern.Majority(), readconcern.Majority())
		insert(t, c, "a")
		byID := bson.D{{Key: "_id", Value: "a"}}
		begin := time.Now()
		transact(t, db.Client(), func(ctx context.Context, abandoned *mongo.Session) {
			if _, err := c.UpdateOne(ctx, byID, one); err != nil {
				t.Fatal(err)
			}
			transact(t, db.Client(), func(ctx context.Context, s *mongo.Session) {
				_, err := c.UpdateOne(ctx, byID, one)
				var se mongo.ServerError
				if codeOf(err) != 112 || !errors.As(err, &se) || !se.HasErrorLabel("TransientTransactionError") {
					t.Errorf("the second transaction: %v", err)
				}
			})
			bounded, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.UpdateOne(bounded, byID, one); err == nil {
				t.Error("a plain write went through the transaction")
			}
			if _, err := c.UpdateOne(t.Context(), byID, one); err != nil || time.Since(begin) < time.Minute {
				t.Errorf("the plain write came through after %v, %v", time.Since(begin), err)
			}
			if err := abandoned.CommitTransaction(ctx); codeOf(err) != 251 {
				t.Errorf("committing what has expired: %v", err)
			}
		})
		// The bounded write's request was still waiting at the server when its client gave up.
		if n := find(t, c, bson.D{})[0].Lookup("n").AsInt64(); n < 1 || n > 2 {
			t.Errorf("incremented %d times", n)
		}
	})
}
