package oncestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// Defaults of Options.
const (
	DefaultCollection = "exactly_once"
	DefaultSweepEvery = time.Minute
)

// Options say how a Store works.
type Options struct {
	// Collection is the collection's name; "": DefaultCollection.
	Collection string
	// SweepEvery is how often Run looks for documents that have expired, where the server does not;
	// 0: DefaultSweepEvery.
	SweepEvery time.Duration
	// Logger gets the errors of Run; nil: slog.Default().
	Logger *slog.Logger
}

// Store is an [exactlyonce.Transactor]. Its methods may be called by several goroutines at once.
type Store struct {
	db   *mongo.Database
	coll *mongo.Collection
	opts Options

	mu     sync.Mutex
	server *server // nil: not asked yet
}

// New returns a store in the database, which is reached with the client that db is from. For DoTx
// the effects must write with the same client. It sends no command yet: EnsureIndexes should be
// called once before the store is used.
func New(db *mongo.Database, o Options) *Store {
	o.Collection = cmp.Or(o.Collection, DefaultCollection)
	o.SweepEvery = cmp.Or(max(o.SweepEvery, 0), DefaultSweepEvery)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	coll := db.Collection(o.Collection, options.Collection().
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(writeconcern.Majority()))
	return &Store{db: db, coll: coll, opts: o}
}

var _ exactlyonce.Transactor = (*Store)(nil)

// Insert implements exactlyonce.Store.
func (s *Store) Insert(ctx context.Context, r exactlyonce.Record) error {
	_, err := s.coll.InsertOne(ctx, encode(r))
	switch {
	case mongo.IsDuplicateKeyError(err):
		return exactlyonce.ErrExists
	case err != nil:
		return fmt.Errorf("insert into %s: %w", s.opts.Collection, err)
	}
	return nil
}

// Get implements exactlyonce.Store.
func (s *Store) Get(ctx context.Context, slot exactlyonce.Slot) (exactlyonce.Record, error) {
	var d document
	err := s.coll.FindOne(ctx, byID(slot)).Decode(&d)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return exactlyonce.Record{}, exactlyonce.ErrNotFound
	case err != nil:
		return exactlyonce.Record{}, fmt.Errorf("read %s: %w", s.opts.Collection, err)
	}
	return d.record(slot.Key), nil
}

// Extend implements exactlyonce.Store. A claim's number of beats never goes back, even if a write
// arrives late.
func (s *Store) Extend(ctx context.Context, slot exactlyonce.Slot, b exactlyonce.Beat) error {
	update := bson.D{{Key: "$max", Value: bson.D{{Key: "beat", Value: b.Number}, {Key: "expireAt", Value: b.ExpireAt}}}}
	if b.Released {
		update = append(update, bson.E{Key: "$set", Value: bson.D{{Key: "released", Value: true}}})
	}
	if _, err := s.coll.UpdateOne(ctx, byID(slot), update); err != nil {
		return fmt.Errorf("extend a claim in %s: %w", s.opts.Collection, err)
	}
	return nil
}

// Keep implements exactlyonce.Store. It reads the first document after the write: a chain that is
// there then was there all the time.
func (s *Store) Keep(ctx context.Context, slot exactlyonce.Slot, until time.Time) (bool, error) {
	models := make([]mongo.WriteModel, 0, slot.Number)
	for at := slot; at.Number > 1; {
		at.Number--
		raise := bson.D{{Key: "expireAt", Value: until}}
		if at.Number == 1 {
			raise = append(raise, bson.E{Key: "head", Value: slot.Number})
		}
		models = append(models, mongo.NewUpdateOneModel().SetFilter(byID(at)).SetUpdate(bson.D{{Key: "$max", Value: raise}}))
	}
	if len(models) > 0 {
		if _, err := s.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err != nil {
			return false, fmt.Errorf("keep a chain of %s: %w", s.opts.Collection, err)
		}
	}
	first, err := s.Get(ctx, exactlyonce.Slot{Key: slot.Key, Number: 1})
	if errors.Is(err, exactlyonce.ErrNotFound) {
		return false, nil
	}
	return err == nil && first.Chain == slot.Chain, err
}
