package oncestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// sweepBatch bounds the documents of one sweep's step.
	sweepBatch = 1000
	// sweepLate is for how much longer than asked the sweeper keeps documents. Engines that need it
	// may delete a document although it was changed at the same moment, and a chain whose time is
	// over is hardly ever extended so late.
	sweepLate    = time.Hour
	sweepTimeout = time.Minute

	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
)

// EnsureIndexes creates the collection, which a transaction on an old server cannot create, and its
// TTL index. It does nothing if they exist, and may be called by any number of processes at once.
func (s *Store) EnsureIndexes(ctx context.Context) error {
	is, err := s.ask(ctx)
	if err != nil {
		return fmt.Errorf("exactlyonce: %w", err)
	}
	index := mongo.IndexModel{Keys: bson.D{{Key: "expireAt", Value: 1}}}
	if is.mongo {
		index.Options = options.Index().SetExpireAfterSeconds(0)
	}
	_, err = s.coll.Indexes().CreateOne(ctx, index)
	var refused mongo.ServerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (refused.HasErrorCode(codeIndexOptionsConflict) || refused.HasErrorCode(codeIndexKeySpecsConflict)):
		return fmt.Errorf("exactlyonce: collection %s has another index on expireAt; drop that one, so that marks expire when they should: %w", s.opts.Collection, err)
	}
	return fmt.Errorf("exactlyonce: create the TTL index of %s: %w", s.opts.Collection, err)
}

// Run removes expired documents until ctx ends, and then returns nil. Where the server does that
// itself it only waits, so every program may run it; one at a time is enough. Without Run, other
// servers keep expired documents, which does no harm otherwise.
func (s *Store) Run(ctx context.Context) error {
	for {
		is, err := s.ask(ctx)
		switch {
		case err == nil && is.mongo:
			<-ctx.Done()
			return nil
		case err == nil:
			_, err = s.Sweep(ctx, time.Now())
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("exactlyonce: expired claims and marks could not be removed", "collection", s.opts.Collection, "error", err)
		}
		timer := time.NewTimer(s.opts.SweepEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// Sweep removes the documents that expired more than an hour before now, once, and returns their
// number.
func (s *Store) Sweep(ctx context.Context, now time.Time) (removed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	filter := bson.D{{Key: "expireAt", Value: bson.D{{Key: "$lt", Value: now.Add(-sweepLate)}}}}
	find := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetLimit(sweepBatch)
	for {
		cursor, err := s.coll.Find(ctx, filter, find)
		if err != nil {
			return removed, fmt.Errorf("look for expired documents of %s: %w", s.opts.Collection, err)
		}
		var expired []struct {
			ID bson.RawValue `bson:"_id"`
		}
		if err := cursor.All(ctx, &expired); err != nil {
			return removed, fmt.Errorf("look for expired documents of %s: %w", s.opts.Collection, err)
		}
		if len(expired) == 0 {
			return removed, nil
		}
		ids := make(bson.A, len(expired))
		for i, d := range expired {
			ids[i] = d.ID
		}
		// Records whose expiry was extended meanwhile stay.
		which := append(bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, filter...)
		result, err := s.coll.DeleteMany(ctx, which)
		if err != nil {
			return removed, fmt.Errorf("remove expired documents of %s: %w", s.opts.Collection, err)
		}
		removed += result.DeletedCount
		if len(expired) < sweepBatch {
			return removed, nil
		}
	}
}
