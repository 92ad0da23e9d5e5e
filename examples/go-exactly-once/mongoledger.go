package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	mongooptions "go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
)

// mongoLedger keeps the sum beside the marks, in MongoDB. With transactions it is one document that
// is incremented, in one transaction with the mark. Without them (a standalone server) an
// increment could come twice: each payment then has a document of its own, which is only ever set,
// and the sum is over all of them.
type mongoLedger struct {
	client       *mongo.Client
	db           *mongo.Database
	once         *exactlyonce.Handler
	transactions bool
}

const (
	// lease is how long a payment waits for another consumer when the one that had it has died.
	lease = 2 * time.Second
	// closeTimeout is for what is done after the example's own context has ended.
	closeTimeout = 10 * time.Second
)

var counter = bson.D{{Key: "_id", Value: "payments"}}

func openMongoLedger(ctx context.Context, uri, database string) (*mongoLedger, error) {
	client, err := mongo.Connect(mongooptions.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	l := &mongoLedger{client: client, db: client.Database(database)}
	store := oncestore.New(l.db, oncestore.Options{})
	switch err := store.CanTransact(ctx); {
	case err == nil:
		l.transactions = true
	case !errors.Is(err, exactlyonce.ErrNoTransactions):
		return nil, errors.Join(err, l.close())
	}
	options := options
	options.Lease, options.Wait = lease, 3*lease
	if l.once, err = exactlyonce.New(store, options); err == nil {
		err = store.EnsureIndexes(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *mongoLedger) form() string {
	if l.transactions {
		return "in one transaction with the mark of each payment."
	}
	return "which has no transactions here: a document for each payment."
}

// prepare makes the document that counts.
func (l *mongoLedger) prepare(ctx context.Context) error {
	_, err := l.db.Collection("sums").InsertOne(ctx, append(counter, bson.E{Key: "sum", Value: 0}))
	return err
}

func (l *mongoLedger) handler(crash sluice.Handler) sluice.Handler {
	if !l.transactions {
		return exactlyonce.OnceClaimed(l.once, func(ctx context.Context, m *sluice.Message, c *exactlyonce.Claim) error {
			return l.set(ctx, m, c, crash)
		})
	}
	once := func(effect sluice.Handler) sluice.Handler { return exactlyonce.OnceTx(l.once, effect) }
	return crashing(once, l.increment, crash) // at the crash it is added and marked, and not acked
}

func (l *mongoLedger) increment(ctx context.Context, m *sluice.Message) error {
	n, err := amount(m)
	if err != nil {
		return err
	}
	_, err = l.db.Collection("sums").UpdateOne(ctx, counter, bson.D{{Key: "$inc", Value: bson.D{{Key: "sum", Value: n}}}})
	return err
}

func (l *mongoLedger) set(ctx context.Context, m *sluice.Message, c *exactlyonce.Claim, crash sluice.Handler) error {
	n, err := amount(m)
	if err != nil {
		return err
	}
	if c.Fence > 1 {
		fmt.Println(m.Event.ID, "was begun by one that died: its document is set once more, and counts once.")
	}
	if err := oncestore.SetFenced(ctx, l.db.Collection("payments"), m.Event.ID, c, bson.D{{Key: "amount", Value: n}}); err != nil {
		return err
	}
	return crash(ctx, m) // it is set, and not marked
}

func (l *mongoLedger) sum(ctx context.Context) (int, error) {
	if l.transactions {
		var doc struct{ Sum int }
		err := l.db.Collection("sums").FindOne(ctx, counter).Decode(&doc)
		return doc.Sum, err
	}
	found, err := l.db.Collection("payments").Find(ctx, bson.D{})
	if err != nil {
		return 0, err
	}
	var docs []struct{ Amount int }
	if err := found.All(ctx, &docs); err != nil {
		return 0, err
	}
	sum := 0
	for _, d := range docs {
		sum += d.Amount
	}
	return sum, nil
}

// drop removes what the example has made.
func (l *mongoLedger) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return l.db.Drop(ctx)
}

func (l *mongoLedger) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return l.client.Disconnect(ctx)
}
