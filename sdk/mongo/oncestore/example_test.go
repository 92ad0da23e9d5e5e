package oncestore_test

import (
	"context"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
)

// The effect's writes and the mark are committed together. (It needs a replica set, so this is
// compiled here but not run; TestTransaction runs the same.)
func Example_transaction() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:27017/?replicaSet=rs0"))
	if err != nil {
		log.Fatal(err)
	}
	db := client.Database("billing")
	store := oncestore.New(db, oncestore.Options{})
	if err := store.EnsureIndexes(ctx); err != nil {
		log.Fatal(err)
	}
	h, err := exactlyonce.New(store, exactlyonce.Options{Scope: exactlyonce.Scope("orders.created", "billing")})
	if err != nil {
		log.Fatal(err)
	}

	committed, err := h.DoTx(ctx, "order-1", func(ctx context.Context) error {
		// Every write with this ctx is part of the transaction.
		_, err := db.Collection("accounts").UpdateOne(ctx,
			bson.D{{Key: "_id", Value: "customer-17"}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: -42}}}})
		return err
	})
	if err != nil {
		log.Fatal(err) // give the event back
	}
	log.Println("acknowledge; committed just now:", committed)
}

// The outcome is a document of its own, which only a later claim may write over. (It needs a
// server, so this is compiled here but not run; TestSetFenced runs the same.)
func ExampleSetFenced() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:27017"))
	if err != nil {
		log.Fatal(err)
	}
	db := client.Database("billing")
	store := oncestore.New(db, oncestore.Options{})
	if err := store.EnsureIndexes(ctx); err != nil {
		log.Fatal(err)
	}
	h, err := exactlyonce.New(store, exactlyonce.Options{Scope: exactlyonce.Scope("orders.created", "billing")})
	if err != nil {
		log.Fatal(err)
	}
	_, err = h.DoClaimed(ctx, "order-1", func(ctx context.Context, c *exactlyonce.Claim) error {
		return oncestore.SetFenced(ctx, db.Collection("invoices"), c.ID, c, bson.D{{Key: "total", Value: 42}})
	})
	if err != nil {
		log.Fatal(err)
	}
}
