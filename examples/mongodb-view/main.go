// Mongodb-view keeps a collection of MongoDB equal to a topic: the latest of each customer.
// MONGODB_URI names the server.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/projector"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	topic, group       = "customers", "customers-view"
	changes, customers = 300, 40
)

var cities = []string{"Basel", "Bern", "Chur", "Genf"}

// customer is the payload of an event, and the document.
type customer struct {
	City   string `json:"city" bson:"city"`
	Region string `json:"-" bson:"region,omitempty"`
}

// view is the rule: the document of an event. A payload null deletes without it.
func view(e *sluice.Event) (any, error) {
	var c customer
	if err := json.Unmarshal(e.Payload, &c); err != nil {
		return nil, err
	}
	return c, nil
}

// viewWithRegion is what the rule becomes.
func viewWithRegion(e *sluice.Event) (any, error) {
	doc, err := view(e)
	if err != nil {
		return nil, err
	}
	c := doc.(customer)
	c.Region = map[bool]string{true: "west", false: "east"}[c.City == "Genf" || c.City == "Bern"]
	return c, nil
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
	if uri == "" {
		return errors.New("MONGODB_URI is not set: it names the server of the collection, such as mongodb://127.0.0.1:27017")
	}
	database, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := database.Database(fmt.Sprintf("sluice_view_%d", time.Now().UnixNano()))
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, db.Drop(ctx), database.Disconnect(ctx))
	}()
	client, err := sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := publish(ctx, client); err != nil {
		return err
	}
	fmt.Printf("%d changes of %d customers published.\n", changes, customers)
	coll := db.Collection("customers")
	if err := twice(ctx, client, coll); err != nil {
		return err
	}
	return rebuild(ctx, client, coll)
}

// publish publishes the customers' changes. The last changes of every fourth customer delete it.
func publish(ctx context.Context, client *sluice.Client) error {
	events := make([]sluice.Event, changes)
	for i := range events {
		number := i % customers
		payload := []byte(`null`)
		if number%4 > 0 || i < changes/2 {
			payload, _ = json.Marshal(customer{City: cities[i*7/customers%len(cities)]})
		}
		events[i] = sluice.Event{Topic: topic, Key: fmt.Sprint("customer-", number), Payload: payload}
	}
	_, err := client.PublishBatch(ctx, events)
	return err
}

// twice projects the topic, and then all of it again.
func twice(ctx context.Context, client *sluice.Client, coll *mongo.Collection) error {
	var applied, superseded atomic.Int64
	stop := start(ctx, client, projector.Config{
		Topic: topic, Group: group, Collection: coll, Map: view,
		Observer: projector.Observer{Applied: func(events, further int, _ time.Duration) {
			applied.Add(int64(events))
			superseded.Add(int64(further))
		}},
	})
	if err := wait(ctx, func() bool { return applied.Load() == changes }); err != nil {
		return err
	}
	before, err := count(ctx, coll, bson.D{projector.Live()})
	if err != nil {
		return err
	}
	var latest struct{ City string }
	if err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: "customer-19"}}).Decode(&latest); err != nil {
		return err
	}
	fmt.Printf("The collection has %d customers. The latest moved to %s.\n", before, latest.City)
	fmt.Println("All is delivered again.")
	if err := client.HTTP().SeekGroup(ctx, topic, group, admin.Position{From: wire.FromEarliest}); err != nil {
		return err
	}
	if err := wait(ctx, func() bool { return applied.Load() == 2*changes }); err != nil {
		return err
	}
	fmt.Printf("%d events were delivered again: %d of them met a document that was further, and no document moved back.\n",
		applied.Load()-changes, superseded.Load())
	after, err := count(ctx, coll, bson.D{projector.Live()})
	if err == nil && after != before {
		err = fmt.Errorf("the collection has %d customers, and had %d", after, before)
	}
	return errors.Join(err, stop())
}

// rebuild projects the topic with another rule, and rebuilds the collection with it.
func rebuild(ctx context.Context, client *sluice.Client, coll *mongo.Collection) error {
	ended := make(chan projector.Progress, 1)
	stop := start(ctx, client, projector.Config{
		Topic: topic, Group: group, Collection: coll, Map: viewWithRegion, CheckEvery: 100 * time.Millisecond,
		Observer: projector.Observer{Rebuild: func(p projector.Progress) {
			if p.Ended {
				ended <- p
			}
		}},
	})
	const why = "every customer is to have a region"
	fmt.Printf("The documents get another shape: rebuilding, since %s.\n", why)
	if err := projector.Rebuild(ctx, coll, why); err != nil {
		return err
	}
	select {
	case p := <-ended:
		all, err := count(ctx, coll, bson.D{projector.Live()})
		west, errWest := count(ctx, coll, bson.D{{Key: "region", Value: "west"}})
		fmt.Printf("Rebuilt: %d events read, %d refused. Of the %d customers, %d live in the west.\n", p.Done, p.Refused, all, west)
		return errors.Join(err, errWest, stop())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start runs a projection until it is stopped.
func start(ctx context.Context, client *sluice.Client, cfg projector.Config) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- projector.Run(ctx, client, cfg) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func count(ctx context.Context, coll *mongo.Collection, filter bson.D) (int64, error) {
	return coll.CountDocuments(ctx, filter)
}

// wait looks every few milliseconds.
func wait(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
