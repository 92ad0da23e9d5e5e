package outbox_test

import (
	"context"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/mongo/outbox"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// An order and the event that it was created are written together. A sidecar with --outbox
// 'mongodb://localhost/shop?replicaSet=rs0#outbox' publishes the event.
func ExampleInsert() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost/?replicaSet=rs0"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("shop")
	if err := outbox.Prepare(ctx, db.Collection("outbox")); err != nil {
		log.Fatal(err)
	}
	session, err := client.StartSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := db.Collection("orders").InsertOne(ctx, bson.D{{Key: "_id", Value: 17}, {Key: "total", Value: 99}}); err != nil {
			return nil, err
		}
		return nil, outbox.Insert(ctx, db.Collection("outbox"),
			wire.Event{Topic: "orders.created", Key: "customer-17", Payload: []byte(`{"order":17}`)})
	})
	if err != nil {
		log.Fatal(err)
	}
}
