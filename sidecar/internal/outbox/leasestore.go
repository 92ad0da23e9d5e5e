package outbox

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
)

// mongoLeases keeps leases in a collection:
//
//	{_id: "drainer/<run>", drainer, name, beat}             written by the drainer; left, by whoever removes it
//	{_id: "<shard>/<epoch>", shard, epoch, owner, released} inserted once, released by its owner
//
// It holds a few dozen documents, and reads them all at once. A request may be
// executed long after its sender has given it up: a beat replaces lower ones
// only, and a drainer that was removed stays for leftKept, so that a late beat
// does not bring it back.
type mongoLeases struct {
	coll  *mongo.Collection
	clock clock.Clock
}

// leftKept is many times what a request can be on its way.
const leftKept = 24 * time.Hour

// there are the documents of drainers that have not left, and of epochs.
var there = bson.E{Key: "left", Value: bson.D{{Key: "$ne", Value: true}}}

func drainerID(id string) string { return "drainer/" + id }

// id is the document's _id.
func (e epoch) id() string { return strconv.Itoa(e.Shard) + "/" + strconv.FormatInt(e.Number, 10) }

func byID(id any) bson.D { return bson.D{{Key: fieldID, Value: id}} }

func (m mongoLeases) beat(ctx context.Context, d drainer) error {
	earlier := append(byID(drainerID(d.ID)), there, bson.E{Key: "beat", Value: bson.D{{Key: "$lt", Value: d.Beat}}})
	_, err := m.coll.UpdateOne(ctx, earlier, bson.D{{Key: "$set", Value: d}}, options.UpdateOne().SetUpsert(true))
	if !mongo.IsDuplicateKeyError(err) {
		return err
	}
	var stored struct {
		Beat int64 `bson:"beat"`
		Left bool  `bson:"left"`
	}
	switch finding := m.coll.FindOne(ctx, byID(drainerID(d.ID))).Decode(&stored); {
	case finding == nil && stored.Left:
		return errRemoved
	case finding == nil && stored.Beat >= d.Beat:
		return nil
	}
	return err // a majority does not have it yet
}

func (m mongoLeases) list(ctx context.Context) (drainers []drainer, epochs []epoch, err error) {
	cursor, err := m.coll.Find(ctx, bson.D{there})
	if err != nil {
		return nil, nil, err
	}
	defer cursor.Close(ctx) // an error says that the server has closed it
	for cursor.Next(ctx) {
		var d struct {
			Drainer drainer `bson:",inline"`
			Epoch   epoch   `bson:",inline"`
		}
		if err := bson.Unmarshal(cursor.Current, &d); err != nil {
			return nil, nil, err
		}
		switch {
		case d.Drainer.ID != "":
			drainers = append(drainers, d.Drainer)
		case d.Epoch.Number > 0:
			epochs = append(epochs, d.Epoch)
		}
	}
	return drainers, epochs, cursor.Err()
}

func (m mongoLeases) insert(ctx context.Context, epochs []epoch) error {
	docs := make([]bson.D, len(epochs))
	for i, e := range epochs {
		docs[i] = bson.D{
			{Key: fieldID, Value: e.id()}, {Key: "shard", Value: e.Shard}, {Key: "epoch", Value: e.Number},
			{Key: "owner", Value: e.Owner}, {Key: "released", Value: e.Released},
		}
	}
	_, err := m.coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && bulk.WriteConcernError == nil {
		for _, e := range bulk.WriteErrors {
			if !mongo.IsDuplicateKeyError(e) {
				return err
			}
		}
		return nil
	}
	return err
}

func (m mongoLeases) release(ctx context.Context, epochs []epoch) error {
	released := bson.D{{Key: "$set", Value: bson.D{{Key: "released", Value: true}}}}
	models := make([]mongo.WriteModel, len(epochs))
	for i, e := range epochs {
		models[i] = mongo.NewUpdateManyModel().SetFilter(byID(e.id())).SetUpdate(released)
	}
	_, err := m.coll.BulkWrite(ctx, models)
	return err
}

func (m mongoLeases) remove(ctx context.Context, drainers []string, epochs []epoch) error {
	var models []mongo.WriteModel
	now := m.clock.Now()
	left := bson.D{{Key: "$set", Value: bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: now}}}}
	for _, id := range drainers { // also one whose first beat is still on its way
		models = append(models, mongo.NewUpdateManyModel().SetFilter(byID(drainerID(id))).SetUpdate(left).SetUpsert(true))
	}
	if len(drainers) > 0 {
		models = append(models, mongo.NewDeleteManyModel().SetFilter(
			bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: bson.D{{Key: "$lt", Value: now.Add(-leftKept)}}}}))
	}
	for _, e := range epochs {
		models = append(models, mongo.NewDeleteOneModel().SetFilter(byID(e.id())))
	}
	_, err := m.coll.BulkWrite(ctx, models)
	return err
}
