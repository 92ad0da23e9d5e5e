package scenarios

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// database is the MongoDB under a shared store.
type database struct{ client *mongo.Client }

func connect(ctx context.Context, url string) (*database, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx, nil); err != nil {
		return nil, errors.Join(err, client.Disconnect(ctx))
	}
	return &database{client}, nil
}

func (d *database) close() { _ = d.client.Disconnect(context.Background()) } // nothing is under way

// prices are what a database has done so far.
type prices struct {
	Opcounters struct{ Insert, Query, Update, Delete, Getmore, Command int64 }
	entries    int64 // of the oplog
}

// prices asks the primary. That takes the role clusterMonitor.
func (d *database) prices(ctx context.Context) (p prices, err error) {
	if err = d.client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&p); err != nil {
		return p, err
	}
	p.entries, err = d.client.Database("local").Collection("oplog.rs").EstimatedDocumentCount(ctx)
	return p, err
}

// since is what one event of n cost.
func (p prices) since(before prices, n int) map[string]float64 {
	per := func(after, before int64) float64 { return float64(after-before) / float64(max(1, n)) }
	a, b := p.Opcounters, before.Opcounters
	return map[string]float64{
		"commands of an event": per(a.Insert+a.Query+a.Update+a.Delete+a.Getmore+a.Command,
			b.Insert+b.Query+b.Update+b.Delete+b.Getmore+b.Command),
		"oplog entries of an event": per(p.entries, before.entries),
	}
}

// insert stores documents as the driver does, acknowledged by a majority.
func (d *database) insert(ctx context.Context, collection string, payloads [][]byte) error {
	documents := make([]bson.D, len(payloads))
	for i, payload := range payloads {
		documents[i] = bson.D{{Key: "ts", Value: time.Now().UnixMilli()}, {Key: "payload", Value: payload}}
	}
	_, err := d.client.Database("sluice_bench").Collection(collection).InsertMany(ctx, documents)
	return err
}
