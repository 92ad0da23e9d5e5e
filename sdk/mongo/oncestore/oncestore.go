package oncestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/internal/majority"
)

// DefaultCollection is the name of the collection where Options have none.
const DefaultCollection = "exactly_once"

// Options say how a Store works.
type Options struct {
	// Collection is the collection's name; "": DefaultCollection.
	Collection string
}

// Store is an [exactlyonce.Transactor]. Its methods may be called by several goroutines at once.
type Store struct {
	db   *mongo.Database
	coll *mongo.Collection

	replicated atomic.Bool // the server has said so
}

// New returns a store in the database, which is reached with the client that db is from. For DoTx
// the effects must write with the same client. It sends no command yet: EnsureIndexes should be
// called once before the store is used.
func New(db *mongo.Database, o Options) *Store {
	return &Store{db: db, coll: majority.Collection(db.Collection(cmp.Or(o.Collection, DefaultCollection)))}
}

// EnsureIndexes creates the collection and its TTL index. It does nothing if they exist, and may be
// called by any number of processes at once.
func (s *Store) EnsureIndexes(ctx context.Context) error {
	if err := majority.ExpireAfter(ctx, s.coll, "expireAt_1", "expireAt", 0); err != nil {
		return fmt.Errorf("exactlyonce: %w", err)
	}
	return nil
}

var _ exactlyonce.Transactor = (*Store)(nil)

// Insert implements exactlyonce.Store.
func (s *Store) Insert(ctx context.Context, r exactlyonce.Record) error {
	_, err := s.coll.InsertOne(ctx, encode(r))
	switch {
	case mongo.IsDuplicateKeyError(err):
		return exactlyonce.ErrExists
	case err != nil:
		return fmt.Errorf("insert into %s: %w", s.coll.Name(), err)
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
		return exactlyonce.Record{}, fmt.Errorf("read %s: %w", s.coll.Name(), err)
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
		return fmt.Errorf("extend a claim in %s: %w", s.coll.Name(), err)
	}
	return nil
}

// Keep implements exactlyonce.Store. It reads the first document after the write: a chain that is
// there then was there all the time.
func (s *Store) Keep(ctx context.Context, slot exactlyonce.Slot, until time.Time) (bool, error) {
	models := make([]mongo.WriteModel, 0, slot.Number)
	for earlier := slot; earlier.Number > 1; {
		earlier.Number--
		raise := bson.D{{Key: "expireAt", Value: until}}
		if earlier.Number == 1 {
			raise = append(raise, bson.E{Key: "head", Value: slot.Number})
		}
		models = append(models, mongo.NewUpdateOneModel().SetFilter(byID(earlier)).SetUpdate(bson.D{{Key: "$max", Value: raise}}))
	}
	if len(models) > 0 {
		if _, err := s.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err != nil {
			return false, fmt.Errorf("keep a chain of %s: %w", s.coll.Name(), err)
		}
	}
	first, err := s.Get(ctx, exactlyonce.Slot{Key: slot.Key, Number: 1})
	if errors.Is(err, exactlyonce.ErrNotFound) {
		return false, nil
	}
	return err == nil && first.Chain == slot.Chain, err
}
