package facts

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/test/mongomodel"
)

// lag has both secondaries of the model receive entries that much later.
func (t *trial) lag(d time.Duration) {
	t.model.Lag(1, d)
	t.model.Lag(2, d)
}

func (t *trial) insertW1(text string) {
	t.Helper()
	_, err := t.with(writeconcern.W1(), readconcern.Local()).InsertMany(t.Context(), t.docs(text))
	t.ok(err)
}

func (t *trial) session() (*mongo.Session, context.Context) {
	t.Helper()
	s, err := t.db.Client().StartSession()
	t.ok(err)
	t.Cleanup(func() { s.EndSession(context.WithoutCancel(t.Context())) })
	return s, mongo.NewSessionContext(t.Context(), s)
}

var concerns = []fact{
	{name: "w beyond the members is code 100 and the document is stored", source: measured, check: func(t *trial) {
		_, err := t.with(&writeconcern.WriteConcern{W: 40}, nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.refused(err, 100, "")
		t.is(t.stored(), `{"_id":1}`)
	}},
	{name: "w beyond the members is a write concern's error, not a write's", source: manual + "reference/write-concern/",
		check: func(t *trial) {
			_, err := t.with(&writeconcern.WriteConcern{W: 40}, nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
			var w mongo.WriteException
			if !errors.As(err, &w) || w.WriteConcernError == nil || w.WriteConcernError.Code != 100 || len(w.WriteErrors) != 0 {
				t.Errorf("%v", err)
			}
		}},
	{name: "wtimeout is code 64 and the document is stored", source: manual + "reference/write-concern/", needs: faults,
		check: func(t *trial) {
			t.lag(time.Minute)
			begin := time.Now()
			const insert = `{"insert":"c","documents":[{"_id":1}],"writeConcern":{"w":"majority","wtimeout":1000}}`
			err := t.db.RunCommand(t.Context(), t.doc(insert)).Err()
			t.refused(err, 64, "timed out")
			if took := time.Since(begin); took != time.Second {
				t.Errorf("after %v", took)
			}
			t.is(t.stored(), `{"_id":1}`)
		}},
	{name: "write errors and a write concern's error come in one reply", source: manual + "reference/command/insert/", check: func(t *trial) {
		t.insert(`{"_id":2}`)
		_, err := t.with(&writeconcern.WriteConcern{W: 40}, nil).InsertMany(t.Context(), t.docs(`{"_id":1},{"_id":2},{"_id":3}`))
		var b mongo.BulkWriteException
		if !errors.As(err, &b) || len(b.WriteErrors) != 1 || b.WriteConcernError == nil {
			t.Errorf("%v", err)
		} else if b.WriteErrors[0].Code != 11000 || b.WriteErrors[0].Index != 1 || b.WriteConcernError.Code != 100 {
			t.Errorf("%v", err)
		}
		t.is(t.stored(), `{"_id":1},{"_id":2}`)
	}},
	{name: "findAndModify has a write concern's error beside its document", source: manual + "reference/command/findAndModify/",
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":1}`)
			err := t.with(&writeconcern.WriteConcern{W: 40}, nil).FindOneAndUpdate(t.Context(), bson.D{}, t.doc(`{"$inc":{"n":1}}`)).Err()
			t.refused(err, 100, "")
			t.is(t.stored(), `{"_id":1,"n":2}`)
		}},
	{name: "w: 1 waits for nobody", source: manual + "reference/write-concern/", needs: faults, check: func(t *trial) {
		t.lag(time.Minute)
		begin := time.Now()
		t.insertW1(`{"_id":1}`)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
	}},
	{name: "majority waits for one more member of three", source: manual + "reference/write-concern/", needs: faults, check: func(t *trial) {
		t.model.Lag(1, 3*time.Second)
		t.model.Lag(2, time.Minute)
		begin := time.Now()
		_, err := t.with(writeconcern.Majority(), nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.ok(err)
		if took := time.Since(begin); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
	}},
	{name: "a write that says nothing waits for a majority since 5.0", source: manual + "reference/write-concern/", needs: faults,
		check: func(t *trial) {
			t.lag(time.Minute)
			begin := time.Now()
			t.insert(`{"_id":1}`)
			if waited := time.Since(begin) >= time.Minute; waited != (t.version != "4.4") {
				t.Errorf("in %s it took %v", t.version, time.Since(begin))
			}
		}},
	{name: "w: 3 waits for the slowest", source: manual + "reference/write-concern/", needs: faults, check: func(t *trial) {
		t.model.Lag(1, 3*time.Second)
		t.model.Lag(2, time.Minute)
		begin := time.Now()
		_, err := t.with(&writeconcern.WriteConcern{W: 3}, nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.ok(err)
		if took := time.Since(begin); took < time.Minute {
			t.Errorf("it took %v", took)
		}
	}},
	{name: "an update that changes nothing waits for its concern too", source: manual + "reference/write-concern/", needs: faults,
		check: func(t *trial) {
			t.lag(time.Minute)
			t.insertW1(`{"_id":1,"a":1}`)
			begin := time.Now()
			_, err := t.with(writeconcern.Majority(), nil).UpdateOne(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$set":{"a":1}}`))
			t.ok(err)
			if took := time.Since(begin); took < 50*time.Second {
				t.Errorf("it took %v", took)
			}
		}},
	{name: "a majority read does not see what no majority has", source: measured, needs: faults, check: func(t *trial) {
		t.lag(time.Minute)
		t.insertW1(`{"_id":1}`)
		t.is(t.all(t.with(nil, readconcern.Majority()), `{}`), ``)
	}},
	{name: "a local read sees what no majority has", source: measured, needs: faults, check: func(t *trial) {
		t.lag(time.Minute)
		t.insertW1(`{"_id":1}`)
		t.is(t.all(t.with(nil, readconcern.Local()), `{}`), `{"_id":1}`)
	}},
	{name: "a majority read sees what a majority has", source: manual + "reference/read-concern-majority/", check: func(t *trial) {
		_, err := t.with(writeconcern.Majority(), nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.ok(err)
		t.is(t.all(t.with(nil, readconcern.Majority()), `{}`), `{"_id":1}`)
	}},
	{name: "a majority read in the writer's session waits for what it wrote", source: measured, needs: faults, check: func(t *trial) {
		t.lag(time.Minute)
		_, ctx := t.session()
		c := t.with(writeconcern.W1(), readconcern.Majority())
		_, err := c.InsertOne(ctx, t.doc(`{"_id":1}`))
		t.ok(err)
		begin := time.Now()
		n, err := c.CountDocuments(ctx, bson.D{})
		if err != nil || n != 1 || time.Since(begin) < 50*time.Second {
			t.Errorf("%d documents after %v, %v", n, time.Since(begin), err)
		}
	}},
	{name: "a duplicate is told once a majority has the document that is there", source: measured, needs: faults, check: func(t *trial) {
		t.lag(time.Minute)
		t.insertW1(`{"_id":1}`)
		begin := time.Now()
		_, err := t.with(writeconcern.Majority(), nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.refused(err, 11000, "")
		if took := time.Since(begin); took < 50*time.Second {
			t.Errorf("it took %v", took)
		}
	}},
	{name: "a secondary does not see yet what it does not have", source: manual + "core/read-preference/", needs: faults,
		check: func(t *trial) {
			t.lag(time.Minute)
			t.insertW1(`{"_id":1}`)
			c := t.db.Collection("c", options.Collection().SetReadPreference(readpref.Secondary()).SetReadConcern(readconcern.Local()))
			t.is(t.all(c, `{}`), ``)
			time.Sleep(2 * time.Minute)
			t.is(t.all(c, `{}`), `{"_id":1}`)
		}},
	{name: "a causal read at a secondary waits for what its session wrote", source: manual + "core/causal-consistency-read-write-concerns/",
		needs: faults, check: func(t *trial) {
			t.lag(time.Minute)
			_, ctx := t.session()
			_, err := t.with(writeconcern.W1(), nil).InsertOne(ctx, t.doc(`{"_id":1}`))
			t.ok(err)
			c := t.db.Collection("c", options.Collection().SetReadPreference(readpref.Secondary()).SetReadConcern(readconcern.Local()))
			n, err := c.CountDocuments(ctx, bson.D{})
			if err != nil || n != 1 {
				t.Errorf("%d documents, %v", n, err)
			}
		}},
	{name: "replies have the time of their operation", source: manual + "reference/method/db.runCommand/", check: func(t *trial) {
		s, ctx := t.session()
		_, err := t.coll.InsertOne(ctx, t.doc(`{"_id":1}`))
		t.ok(err)
		first := s.OperationTime()
		_, err = t.coll.InsertOne(ctx, t.doc(`{"_id":2}`))
		t.ok(err)
		if second := s.OperationTime(); first == nil || second == nil || !second.After(*first) || s.ClusterTime() == nil {
			t.Errorf("%v, then %v", first, second)
		}
	}},
	{name: "a secondary takes no writes", source: manual + "reference/error-codes/", needs: faults, check: func(t *trial) {
		direct := t.client("direct", options.Client().SetHosts([]string{"m1:27017"}).SetDirect(true).SetRetryWrites(false))
		_, err := direct.Database(t.db.Name()).Collection("c").InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.refused(err, 10107, "not primary")
	}},
	{name: "a command ends at its maxTimeMS", source: manual + "reference/error-codes/", needs: faults, check: func(t *trial) {
		t.capped(1<<20, 0)
		t.lag(time.Hour)
		t.insertW1(`{"_id":1}`)
		_, ctx := t.session()
		_, err := t.with(writeconcern.W1(), nil).InsertOne(ctx, t.doc(`{"_id":2}`))
		t.ok(err)
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		begin := time.Now()
		_, err = t.with(nil, readconcern.Majority()).CountDocuments(bounded, bson.D{})
		if err == nil || time.Since(begin) > 6*time.Second || !mongo.IsTimeout(err) {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	}},
}

// loses loses the answer to the first command of a name.
func (t *trial) loses(command string, f mongomodel.Fault) {
	var done atomic.Bool
	t.fault.Store(func(r mongomodel.Request) mongomodel.Fault {
		if r.Command == command && done.CompareAndSwap(false, true) {
			return f
		}
		return mongomodel.Fault{}
	})
}

// stepDown has the primary step down, and fails if it does not.
func (t *trial) stepDown() {
	t.Helper()
	err := t.db.Client().Database("admin").RunCommand(t.Context(),
		bson.D{{Key: "replSetStepDown", Value: 5}, {Key: "force", Value: true}}).Err()
	if err != nil && !mongo.IsNetworkError(err) { // servers before 4.2 break the connection
		t.Fatal(err)
	}
}

var failover = []fact{
	{name: "a write goes on after a stepdown, by being retried", source: measured, needs: stepdowns, check: func(t *trial) {
		t.insert(`{"_id":1}`)
		t.stepDown()
		t.insert(`{"_id":2}`)
		t.is(t.stored(), `{"_id":1},{"_id":2}`)
	}},
	{name: "who was primary refuses writes", source: manual + "reference/command/replSetStepDown/", needs: faults, check: func(t *trial) {
		direct := t.client("direct", options.Client().SetHosts([]string{"m0:27017"}).SetDirect(true).SetRetryWrites(false))
		c := direct.Database(t.db.Name()).Collection("c")
		_, err := c.InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.ok(err)
		t.stepDown()
		_, err = c.InsertOne(t.Context(), t.doc(`{"_id":2}`))
		var labeled mongo.ServerError
		if !errors.As(err, &labeled) || !labeled.HasErrorCode(10107) && !labeled.HasErrorCode(189) {
			t.Errorf("%v", err)
		}
	}},
	{name: "a write that a stepdown ended may be retried", source: manual + "core/retryable-writes/", needs: faults, check: func(t *trial) {
		t.lag(time.Minute)
		failed := make(chan error, 1)
		go func() {
			c := t.client("other", options.Client().SetRetryWrites(false)).Database(t.db.Name()).Collection("c",
				options.Collection().SetWriteConcern(writeconcern.Majority()))
			_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
			failed <- err
		}()
		time.Sleep(time.Second)
		t.model.StepDown(0)
		err := <-failed
		if err == nil || !slicesHave(mongo.ErrorCodes(err), 10107, 189, 11602, 91) {
			t.Errorf("%v", err)
		}
	}},
	{name: "a write whose answer was lost is executed once", source: manual + "core/retryable-writes/", needs: faults, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		t.loses("update", mongomodel.Fault{LoseAnswer: true})
		got, err := t.coll.UpdateOne(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$inc":{"n":1}}`))
		t.ok(err)
		if got.ModifiedCount != 1 {
			t.Errorf("%+v", got)
		}
		t.is(t.stored(), `{"_id":1,"n":1}`)
	}},
	{name: "an insert whose answer was lost is no duplicate of itself", source: manual + "core/retryable-writes/", needs: faults,
		check: func(t *trial) {
			t.loses("insert", mongomodel.Fault{LoseAnswer: true})
			t.insert(`{"_id":1},{"_id":2}`)
			t.is(t.stored(), `{"_id":1},{"_id":2}`)
		}},
	{name: "findAndModify whose answer was lost gives the same document again", source: manual + "core/retryable-writes/", needs: faults,
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0}`)
			t.loses("findAndModify", mongomodel.Fault{LoseAnswer: true})
			got, err := t.coll.FindOneAndUpdate(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$inc":{"n":1}}`),
				options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw()
			t.ok(err)
			t.is(show(got), `{"_id":1,"n":1}`)
		}},
	{name: "an update of many is not retried", source: manual + "core/retryable-writes/", needs: faults, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		t.loses("update", mongomodel.Fault{LoseAnswer: true})
		if _, err := t.coll.UpdateMany(t.Context(), bson.D{}, t.doc(`{"$inc":{"n":1}}`)); !mongo.IsNetworkError(err) {
			t.Errorf("%v", err)
		}
		t.is(t.stored(), `{"_id":1,"n":1}`)
	}},
	{name: "a write retried at the next primary is executed once", source: manual + "core/retryable-writes/", needs: faults,
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0}`)
			var done atomic.Bool
			t.fault.Store(func(r mongomodel.Request) mongomodel.Fault {
				if r.Command != "update" || !done.CompareAndSwap(false, true) {
					return mongomodel.Fault{}
				}
				time.AfterFunc(time.Millisecond, func() { t.model.Kill(0) })
				return mongomodel.Fault{LoseAnswer: true}
			})
			_, err := t.coll.UpdateOne(t.Context(), t.doc(`{"_id":1}`), t.doc(`{"$inc":{"n":1}}`))
			t.ok(err)
			t.is(t.stored(), `{"_id":1,"n":1}`)
		}},
	{name: "what a majority has survives its primary", source: manual + "core/replica-set-elections/", needs: faults, check: func(t *trial) {
		_, err := t.with(writeconcern.Majority(), nil).InsertOne(t.Context(), t.doc(`{"_id":1}`))
		t.ok(err)
		t.model.Kill(0)
		t.insert(`{"_id":2}`)
		t.is(t.stored(), `{"_id":1},{"_id":2}`)
	}},
	{name: "what no majority has is rolled back with its primary", source: manual + "core/replica-set-rollbacks/", needs: faults,
		check: func(t *trial) {
			t.insert(`{"_id":1}`)
			t.model.Isolate(0)
			own := t.client("own", options.Client().SetHosts([]string{"m0:27017"}).SetDirect(true).SetRetryWrites(false))
			_, err := own.Database(t.db.Name()).Collection("c", options.Collection().SetWriteConcern(writeconcern.W1())).InsertOne(t.Context(),
				t.doc(`{"_id":"lost"}`))
			t.ok(err)
			time.Sleep(time.Minute)
			t.insert(`{"_id":2}`)
			t.model.JoinAll()
			time.Sleep(time.Minute)
			t.is(t.stored(), `{"_id":1},{"_id":2}`)
		}},
	{name: "a cursor does not know another member's", source: manual + "reference/command/getMore/", needs: faults, check: func(t *trial) {
		t.many(10)
		cur, err := t.coll.Find(t.Context(), bson.D{}, options.Find().SetBatchSize(2))
		t.ok(err)
		t.model.Kill(0)
		n := 0
		for cur.Next(t.Context()) {
			n++
		}
		if cur.Err() == nil || n != 2 {
			t.Errorf("%d documents, %v", n, cur.Err())
		}
	}},
	{name: "a tailable cursor stays open through a stepdown, on what is now a secondary", source: measured, needs: stepdowns,
		check: func(t *trial) {
			t.capped(1<<20, 0)
			t.insert(`{"_id":1}`)
			cur := t.tail()
			if !cur.Next(t.Context()) {
				t.Fatal(cur.Err())
			}
			t.stepDown()
			t.insert(`{"_id":2}`)
			if !cur.Next(t.Context()) {
				t.Fatal(cur.Err())
			}
			t.is(show(cur.Current), `{"_id":2}`)
		}},
}

func slicesHave(all []int, some ...int) bool {
	for _, x := range all {
		for _, y := range some {
			if x == y {
				return true
			}
		}
	}
	return false
}
