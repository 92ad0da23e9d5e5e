// Capture has two parts that know nothing of each other: a shop that writes the collection of its
// products, without Sluice, and a service that keeps a table of them. A sidecar with --capture
// publishes what the shop writes. MONGODB_URI names the replica set, and the argument the database,
// which is dropped at the end.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/table"
)

// product is the shop's document.
type product struct {
	Name  string `json:"_id" bson:"_id"`
	Price int    `json:"price" bson:"price"`
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
		return errors.New("usage: MONGODB_URI=mongodb://127.0.0.1:27017/?replicaSet=rs0 capture DATABASE, " +
			"beside a sidecar with --capture 'mongodb://127.0.0.1:27017/DATABASE?replicaSet=rs0#products=products'")
	}
	mongodb, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	products := mongodb.Database(os.Args[1]).Collection("products")
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, products.Database().Drop(ctx), mongodb.Disconnect(ctx))
	}()
	if err := shop(ctx, products); err != nil {
		return err
	}
	return service(ctx, map[string]int{"tea": 5, "milk": 2, "bread": 4})
}

// shop writes its collection as it always did.
func shop(ctx context.Context, products *mongo.Collection) error {
	for _, p := range []product{{"tea", 3}, {"milk", 2}, {"sugar", 1}} {
		if _, err := products.InsertOne(ctx, p); err != nil {
			return err
		}
	}
	if _, err := products.UpdateByID(ctx, "tea", bson.D{{Key: "$inc", Value: bson.D{{Key: "price", Value: 2}}}}); err != nil {
		return err
	}
	if _, err := products.DeleteOne(ctx, bson.D{{Key: "_id", Value: "sugar"}}); err != nil {
		return err
	}
	_, err := products.InsertOne(ctx, product{"bread", 4})
	return err
}

// service keeps a table of the products until it has these prices.
func service(ctx context.Context, want map[string]int) error {
	client, err := sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"))
	if err != nil {
		return err
	}
	defer client.Close()
	changed := make(chan table.Change[product], 100)
	t, err := table.Open(ctx, client, "products", table.Options[product]{
		Decode: func(e *sluice.Event) (product, error) {
			var captured struct{ Document product }
			err := json.Unmarshal(e.Payload, &captured)
			return captured.Document, err
		},
		OnChange: func(c table.Change[product]) { changed <- c },
	})
	if err != nil {
		return err
	}
	defer t.Close()
	prices := map[string]int{}
	for !maps.Equal(prices, want) {
		select {
		case c := <-changed:
			if c.Deleted {
				delete(prices, c.Key)
				fmt.Printf("%s is not sold any more\n", c.Key)
				continue
			}
			prices[c.Key] = c.Value.Price
			fmt.Printf("%s costs %d\n", c.Key, c.Value.Price)
		case <-ctx.Done():
			return fmt.Errorf("the table has %v, want %v: %w", prices, want, ctx.Err())
		}
	}
	fmt.Printf("The table has the %d products of the shop, which knows nothing of it.\n", len(prices))
	return nil
}
