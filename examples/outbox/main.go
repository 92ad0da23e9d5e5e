// Outbox stores orders and the events that tell of them in one transaction each. A sidecar with
// --outbox publishes the events. MONGODB_URI names the replica set, and the argument the database,
// which is dropped at the end.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/mongo/outbox"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	topic, group      = "orders.created", "billing"
	orders, customers = 20, 4
)

// order is the application's document, and the event's payload.
type order struct {
	Number   int    `json:"order" bson:"_id"`
	Customer string `json:"customer" bson:"customer"`
}

var errDeclined = errors.New("the card was declined")

// place stores an order and inserts its event, or does neither.
func place(ctx context.Context, db *mongo.Database, o order) error {
	session, err := db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := db.Collection("orders").InsertOne(ctx, o); err != nil {
			return nil, err
		}
		payload, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		if err := outbox.Insert(ctx, db.Collection("outbox"), wire.Event{Topic: topic, Key: o.Customer, Payload: payload}); err != nil {
			return nil, err
		}
		if o.Number%5 == 0 {
			return nil, errDeclined // the transaction is rolled back, and the event with it
		}
		return nil, nil
	})
	return err
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	uri := os.Getenv("MONGODB_URI")
	if uri == "" || len(os.Args) != 2 {
		return errors.New("usage: MONGODB_URI=mongodb://127.0.0.1:27017/?replicaSet=rs0 outbox DATABASE, " +
			"beside a sidecar with --outbox 'mongodb://127.0.0.1:27017/DATABASE?replicaSet=rs0#outbox'")
	}
	mongodb, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := mongodb.Database(os.Args[1])
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, db.Drop(ctx), mongodb.Disconnect(ctx))
	}()
	if err := outbox.Prepare(ctx, db.Collection("outbox")); err != nil {
		return err
	}
	client, err := sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"))
	if err != nil {
		return err
	}
	defer client.Close()
	came := make(chan order, orders)
	_, err = client.Subscribe(ctx, topic, group, func(_ context.Context, m *sluice.Message) error {
		var o order
		if err := json.Unmarshal(m.Event.Payload, &o); err != nil {
			return err
		}
		fmt.Printf("billing: order %d of %s\n", o.Number, o.Customer)
		came <- o
		return nil
	}, option.FromEarliest())
	if err != nil {
		return err
	}
	stored, declined := map[int]bool{}, 0
	for n := 1; n <= orders; n++ {
		err := place(ctx, db, order{n, fmt.Sprint("customer-", n%customers)})
		switch {
		case err == nil:
			stored[n] = true
		case errors.Is(err, errDeclined):
			declined++
		default:
			return err
		}
	}
	return check(ctx, db, came, stored, declined)
}

// check waits for an event of each order that was stored, and compares them with the orders.
func check(ctx context.Context, db *mongo.Database, came <-chan order, stored map[int]bool, declined int) error {
	last := map[string]int{}
	for range stored {
		select {
		case o := <-came:
			if !stored[o.Number] || o.Number <= last[o.Customer] {
				return fmt.Errorf("order %d of %s came, which was declined, or after order %d", o.Number, o.Customer, last[o.Customer])
			}
			last[o.Customer] = o.Number
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	there, err := db.Collection("orders").CountDocuments(ctx, bson.D{})
	if err == nil && there != int64(len(stored)) {
		err = fmt.Errorf("the database has %d orders, and %d were stored", there, len(stored))
	}
	if err == nil {
		fmt.Printf("%d orders are stored and billed, each customer's in order; %d were declined, and nobody heard of them.\n", there, declined)
	}
	return err
}
