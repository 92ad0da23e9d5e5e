// Package majority is about the collections that this module's packages keep: a majority of the replica set has what they say.
package majority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Collection is the collection with the write concern and the read concern majority, read from the primary, whatever the client's
// defaults are.
func Collection(coll *mongo.Collection) *mongo.Collection {
	return coll.Clone(options.Collection().
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(writeconcern.Majority()))
}

const (
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
)

// ExpireAfter makes the server remove each document when the time in a field is so long ago. It does nothing if the index exists,
// and creates the collection where there is none, which a transaction on an old server cannot.
func ExpireAfter(ctx context.Context, coll *mongo.Collection, index, field string, age time.Duration) error {
	_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: field, Value: 1}},
		Options: options.Index().SetName(index).SetExpireAfterSeconds(int32(age / time.Second)),
	})
	var refused mongo.ServerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (refused.HasErrorCode(codeIndexOptionsConflict) || refused.HasErrorCode(codeIndexKeySpecsConflict)):
		return fmt.Errorf("collection %s has another index on %s; drop that one, so that documents expire when they should: %w",
			coll.Name(), field, err)
	}
	return fmt.Errorf("create the TTL index of %s: %w", coll.Name(), err)
}
