package outbox

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// MongoDB's error codes.
const (
	codeUnauthorized          = 13
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
)

// createIndexes creates what is missing. One that exists under another name
// will do. Without the right to create indexes the drainer works, and says so.
func (d *Drainer) createIndexes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	for _, keys := range []bson.D{
		{{Key: fieldStatus, Value: 1}, {Key: fieldTS, Value: 1}, {Key: fieldID, Value: 1}}, // for reading in order
		{{Key: fieldStatus, Value: 1}, {Key: fieldLeaseUntil, Value: 1}},                   // for claims that have run out
	} {
		_, err := d.outbox.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys})
		var server mongo.ServerError
		switch {
		case err == nil:
		case !errors.As(err, &server):
			return err
		case server.HasErrorCode(codeIndexOptionsConflict), server.HasErrorCode(codeIndexKeySpecsConflict):
		case server.HasErrorCode(codeUnauthorized):
			d.cfg.Logger.Warn("an index of the outbox cannot be created: without it every look reads the whole collection",
				"keys", keys, "error", err)
		default:
			return err
		}
	}
	return nil
}

// reviveClaims makes documents pending whose claim has run out. The drainer
// itself claims none; what is there was written by others, whose clock is all
// that says until when.
func (d *Drainer) reviveClaims(ctx context.Context) error {
	if !d.leases.usable().has(0) || time.Since(d.revived) < d.cfg.Lease {
		return nil // one drainer is enough
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	now := time.Now()
	until := func(condition any) bson.D { return bson.D{{Key: fieldLeaseUntil, Value: condition}} }
	over := bson.A{
		until(bson.D{{Key: "$lt", Value: now}}),
		until(bson.D{{Key: "$lt", Value: now.UnixMilli()}}),
		until(nil),
	}
	_, err := d.outbox.UpdateMany(ctx,
		bson.D{{Key: fieldStatus, Value: statusClaimed}, {Key: "$or", Value: over}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: fieldStatus, Value: statusPending}}},
			{Key: "$unset", Value: bson.D{{Key: fieldLeaseUntil, Value: ""}, {Key: fieldOwner, Value: ""}}},
		})
	if err == nil {
		d.revived = now
	}
	return err
}
