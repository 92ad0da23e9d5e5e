package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/test/mongotest"
)

// increment is an application's own write.
func incrementStored(ctx context.Context, db *mongo.Database, counter string) error {
	_, err := db.Collection("counters").UpdateOne(ctx, bson.D{{Key: "_id", Value: counter}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
	return err
}

func counter(ctx context.Context, t testing.TB, db *mongo.Database, name string) int {
	t.Helper()
	var doc struct{ N int }
	err := db.Collection("counters").FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&doc)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
	return doc.N
}

// newTxDatabase returns an empty database of a server with transactions, and its URI.
func newTxDatabase(t testing.TB) (uri string, db *mongo.Database) {
	t.Helper()
	server := mongotest.Shared(t)
	server.Needs(t, mongotest.Transactions)
	name := server.NewDatabase(t)
	return server.URI(name), connectMongo(t, server.URI(name), name)
}

func TestTransaction(t *testing.T) {
	ctx := t.Context()
	_, db := newTxDatabase(t)
	h := newStoreHandler(t, newStore(t, db), exactlyonce.Options{})
	mishap := errors.New("mishap")
	committed, err := h.DoTx(ctx, "order-1", func(ctx context.Context) error {
		if err := incrementStored(ctx, db, "orders"); err != nil {
			return err
		}
		return mishap
	})
	if committed || !errors.Is(err, mishap) || counter(ctx, t, db, "orders") != 0 {
		t.Fatalf("an effect that fails: %v, %v, %d", committed, err, counter(ctx, t, db, "orders"))
	}
	for i := range 2 {
		committed, err = h.DoTx(ctx, "order-1", func(ctx context.Context) error { return incrementStored(ctx, db, "orders") })
		if committed != (i == 0) || err != nil || counter(ctx, t, db, "orders") != 1 {
			t.Errorf("try %d: %v, %v, %d", i, committed, err, counter(ctx, t, db, "orders"))
		}
	}
}

// An owner that was fenced while its transaction was open does not commit.
func TestFencedTransactionDoesNotCommit(t *testing.T) {
	ctx := t.Context()
	_, db := newTxDatabase(t)
	s := newStore(t, db)
	h := newStoreHandler(t, s, exactlyonce.Options{})
	committed, err := h.DoTx(ctx, "order-1", func(txCtx context.Context) error {
		if err := incrementStored(txCtx, db, "orders"); err != nil {
			return err
		}
		return h.Mark(ctx, "order-1") // as another would, outside
	})
	if committed || err != nil || counter(ctx, t, db, "orders") != 0 {
		t.Errorf("%v, %v, %d", committed, err, counter(ctx, t, db, "orders"))
	}
}

func TestTransactionsOnOneDocumentAtOnce(t *testing.T) {
	ctx := t.Context()
	_, db := newTxDatabase(t)
	s := newStore(t, db)
	const consumers, events = 4, 10
	var all sync.WaitGroup
	for range consumers {
		h := newStoreHandler(t, s, exactlyonce.Options{Wait: time.Minute})
		all.Go(func() {
			for i := range events {
				_, err := h.DoTx(ctx, fmt.Sprint("order-", i), func(ctx context.Context) error { return incrementStored(ctx, db, "orders") })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := counter(ctx, t, db, "orders"); n != events {
		t.Errorf("%d events were counted %d times", events, n)
	}
}
