package outbox

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// mongoOwner keeps the owner in a document of its own:
//
//	{_id: "owner", outbox, log, node, lease, beat}
type mongoOwner struct {
	coll *mongo.Collection // <outbox>_owner
}

func byID(id any) bson.D { return bson.D{{Key: fieldID, Value: id}} }

const ownerID = "owner"

func (m mongoOwner) find(ctx context.Context) (o owner, err error) {
	err = m.coll.FindOne(ctx, byID(ownerID)).Decode(&o)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return owner{}, nil
	}
	return o, err
}

func (m mongoOwner) write(ctx context.Context, was, now owner) (got owner, ok bool, err error) {
	filter := append(byID(ownerID), bson.E{Key: "log", Value: was.Log})
	if was.Beat != anyBeat {
		filter = append(filter, bson.E{Key: "beat", Value: was.Beat})
	}
	update := bson.D{
		{Key: "$set", Value: bson.D{{Key: "log", Value: now.Log}, {Key: "node", Value: now.Node}, {Key: "lease", Value: now.Lease}}},
		{Key: "$inc", Value: bson.D{{Key: "beat", Value: 1}}},
		{Key: "$setOnInsert", Value: bson.D{{Key: "outbox", Value: uuid.NewString()}}},
	}
	o := options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(was.Beat == 0)
	err = m.coll.FindOneAndUpdate(ctx, filter, update, o).Decode(&got)
	if errors.Is(err, mongo.ErrNoDocuments) || mongo.IsDuplicateKeyError(err) {
		return owner{}, false, nil
	}
	return got, err == nil, err
}
