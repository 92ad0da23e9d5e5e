package oncestore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// FenceField is the field in which SetFenced keeps the fence of the last write.
const FenceField = "exactly_once_fence"

// SetFenced sets fields of the document that has the outcome of one event's effect, and makes it if
// there is none. If a later claim of the same event has written it already, nothing changes and the
// error matches exactlyonce.ErrFenced. The document's id must be made from the event's id: fences
// of different events cannot be compared.
//
// Setting is idempotent, so a claim that follows a crash writes the same document once more.
func SetFenced(ctx context.Context, coll *mongo.Collection, id any, c *exactlyonce.Claim, fields bson.D) error {
	filter := bson.D{
		{Key: "_id", Value: id},
		{Key: FenceField, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: c.Fence}}}}},
	}
	set := append(bson.D{{Key: FenceField, Value: c.Fence}}, fields...)
	var err error
	for range 2 { // an upsert that met another one finds its document the second time
		_, err = coll.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: set}}, options.UpdateOne().SetUpsert(true))
		if !mongo.IsDuplicateKeyError(err) {
			return err
		}
	}
	return fmt.Errorf("exactlyonce: the outcome of %q is written already: %w", c.ID, exactlyonce.ErrFenced)
}
