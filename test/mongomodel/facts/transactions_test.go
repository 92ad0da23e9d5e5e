package facts

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// begin starts a transaction with a snapshot of its own, which ends with the test.
func (t *trial) begin() (*mongo.Session, context.Context) {
	t.Helper()
	s, ctx := t.session()
	t.ok(s.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())))
	return s, ctx
}

func (t *trial) bump(ctx context.Context, id int) error {
	_, err := t.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
	return err
}

func (t *trial) labeled(err error, label string) {
	t.Helper()
	var se mongo.ServerError
	if !errors.As(err, &se) || !se.HasErrorLabel(label) {
		t.Errorf("it has no label %s: %v", label, err)
	}
}

const transactionPage = "core/transactions/"

var transactions = []fact{
	{name: "a transaction sees its own writes, and nobody else does", source: manual + transactionPage, check: func(t *trial) {
		t.insert(`{"_id":1}`)
		_, ctx := t.begin()
		_, err := t.coll.InsertOne(ctx, t.doc(`{"_id":2}`))
		t.ok(err)
		inside, err := t.coll.CountDocuments(ctx, bson.D{})
		t.ok(err)
		if outside, err := t.coll.CountDocuments(t.Context(), bson.D{}); err != nil || inside != 2 || outside != 1 {
			t.Errorf("%d inside, %d outside, %v", inside, outside, err)
		}
	}},
	{name: "a commit shows all at once", source: manual + transactionPage, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		s, ctx := t.begin()
		_, err := t.coll.InsertOne(ctx, t.doc(`{"_id":2}`))
		t.ok(err)
		t.ok(t.bump(ctx, 1))
		t.ok(s.CommitTransaction(ctx))
		t.is(t.stored(), `{"_id":1,"n":1},{"_id":2}`)
	}},
	{name: "an abort leaves nothing", source: manual + transactionPage, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		s, ctx := t.begin()
		t.ok(t.bump(ctx, 1))
		t.ok(s.AbortTransaction(ctx))
		t.is(t.stored(), `{"_id":1,"n":0}`)
	}},
	{name: "a transaction reads one moment", source: manual + "reference/read-concern-snapshot/", check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		_, ctx := t.begin()
		t.ok(t.coll.FindOne(ctx, t.doc(`{"_id":1}`)).Err())
		t.ok(t.bump(t.Context(), 1))
		got, err := t.coll.FindOne(ctx, t.doc(`{"_id":1}`)).Raw()
		t.ok(err)
		t.is(show(got), `{"_id":1,"n":0}`)
	}},
	{name: "two transactions that write one document conflict", source: manual + "core/transactions-production-consideration/",
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0}`)
			_, first := t.begin()
			_, second := t.begin()
			t.ok(t.bump(first, 1))
			err := t.bump(second, 1)
			t.refused(err, 112, "")
			t.labeled(err, "TransientTransactionError")
		}},
	{name: "a conflict ends the transaction that meets it", source: manual + "core/transactions-production-consideration/",
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0},{"_id":2,"n":0}`)
			_, first := t.begin()
			_, second := t.begin()
			t.ok(t.bump(first, 1))
			t.refused(t.bump(second, 1), 112, "")
			t.refused(t.bump(second, 2), 251, "")
		}},
	{name: "a transaction conflicts with what was written since it began", source: manual + "core/transactions-production-consideration/",
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0},{"_id":2,"n":0}`)
			_, ctx := t.begin()
			t.ok(t.coll.FindOne(ctx, t.doc(`{"_id":2}`)).Err())
			t.ok(t.bump(t.Context(), 1))
			t.refused(t.bump(ctx, 1), 112, "")
		}},
	{name: "two transactions that insert one _id conflict", source: manual + "core/transactions-production-consideration/",
		check: func(t *trial) {
			t.insert(`{"_id":1}`)
			_, first := t.begin()
			_, second := t.begin()
			_, err := t.coll.InsertOne(first, t.doc(`{"_id":2}`))
			t.ok(err)
			_, err = t.coll.InsertOne(second, t.doc(`{"_id":2}`))
			t.refused(err, 112, "")
		}},
	{name: "a duplicate ends a transaction", source: manual + transactionPage, check: func(t *trial) {
		t.insert(`{"_id":1}`)
		s, ctx := t.begin()
		_, err := t.coll.InsertOne(ctx, t.doc(`{"_id":1}`))
		t.refused(err, 11000, "")
		t.refused(s.CommitTransaction(ctx), 251, "")
	}},
	{name: "a transaction holds its documents from plain writes until it ends", source: measured, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		s, ctx := t.begin()
		t.ok(t.bump(ctx, 1))
		written := make(chan error, 1)
		go func() { written <- t.bump(t.Context(), 1) }()
		select {
		case err := <-written:
			t.Fatalf("a plain write went by: %v", err)
		case <-time.After(time.Second):
		}
		t.ok(s.CommitTransaction(ctx))
		t.ok(<-written)
		t.is(t.stored(), `{"_id":1,"n":2}`)
	}},
	{name: "a plain read passes an open transaction", source: manual + transactionPage, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		_, ctx := t.begin()
		t.ok(t.bump(ctx, 1))
		t.is(t.stored(), `{"_id":1,"n":0}`)
	}},
	{name: "an abandoned transaction holds its writes for a minute", source: measured, needs: patience, check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		_, ctx := t.begin()
		t.ok(t.bump(ctx, 1))
		time.Sleep(50 * time.Second)
		_, other := t.begin()
		t.refused(t.bump(other, 1), 112, "")
		time.Sleep(65 * time.Second)
		t.ok(t.bump(t.Context(), 1))
		t.is(t.stored(), `{"_id":1,"n":1}`)
	}},
	{name: "a transaction that has expired cannot be committed", source: manual + "reference/parameters/", needs: patience,
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0}`)
			s, ctx := t.begin()
			t.ok(t.bump(ctx, 1))
			time.Sleep(3 * time.Minute)
			t.refused(s.CommitTransaction(ctx), 251, "")
		}},
	{name: "a transaction ends with its primary", source: manual + "core/transactions-production-consideration/", needs: faults,
		check: func(t *trial) {
			t.insert(`{"_id":1,"n":0}`)
			_, ctx := t.begin()
			t.ok(t.bump(ctx, 1))
			t.model.StepDown(0)
			time.Sleep(time.Minute)
			err := t.bump(ctx, 1)
			if err == nil {
				t.Error("it goes on")
			}
			t.is(t.stored(), `{"_id":1,"n":0}`)
		}},
	{name: "a commit may be repeated", source: manual + "core/transactions-in-applications/", check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		s, ctx := t.begin()
		t.ok(t.bump(ctx, 1))
		t.ok(s.CommitTransaction(ctx))
		t.ok(s.CommitTransaction(ctx))
		t.is(t.stored(), `{"_id":1,"n":1}`)
	}},
	{name: "a callback is run again after a conflict", source: manual + "core/transactions-in-applications/", check: func(t *trial) {
		t.insert(`{"_id":1,"n":0}`)
		first, held := t.begin()
		t.ok(t.bump(held, 1))
		s, _ := t.session()
		runs := 0
		_, err := s.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			if runs++; runs == 2 {
				t.ok(first.CommitTransaction(held))
			}
			return nil, t.bump(ctx, 1)
		})
		if err != nil || runs < 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
		t.is(t.stored(), `{"_id":1,"n":2}`)
	}},
}
