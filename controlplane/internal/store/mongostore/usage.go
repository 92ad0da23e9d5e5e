package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// usageDoc is what one control plane has counted on one day.
type usageDoc struct {
	Key    string `bson:"_id"`
	Day    string `bson:"day"`
	Writer string `bson:"writer"`
	Number int64  `bson:"number"`
	Doc    []byte `bson:"doc"`
}

// PutUsage implements store.Usage.
func (s *Store) PutUsage(ctx context.Context, d store.UsageDoc) error {
	if len(d.Doc) > store.MaxCommitBytes {
		return store.ErrTooLarge
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	earlier := bson.E{Key: "number", Value: bson.D{{Key: "$lt", Value: d.Number}}}
	put := bson.D{{Key: "$set", Value: bson.D{{Key: "day", Value: d.Day}, {Key: "writer", Value: d.Writer}, {Key: "number", Value: d.Number},
		{Key: "doc", Value: bson.Binary{Data: d.Doc}}}}}
	_, err = s.usage.UpdateOne(ctx, append(byID(d.Key()), earlier), put, options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) { // a later one is there
		return failed(ctx, "keep what was counted", err)
	}
	return nil
}

// UsageBetween implements store.Usage.
func (s *Store) UsageBetween(ctx context.Context, from, to string) ([]store.UsageDoc, error) {
	days := bson.E{Key: "_id", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to + "\v"}}} // after a day comes a line feed
	found, err := all[usageDoc](ctx, s, s.usage, "read what was counted", days)
	if err != nil {
		return nil, err
	}
	var docs []store.UsageDoc
	for _, d := range found {
		docs = append(docs, store.UsageDoc{Day: d.Day, Writer: d.Writer, Number: d.Number, Doc: d.Doc})
	}
	return docs, nil
}

// ForgetUsage implements store.Usage.
func (s *Store) ForgetUsage(ctx context.Context, day string) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := s.usage.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$lt", Value: day}}}}); err != nil {
		return failed(ctx, "forget what was counted", err)
	}
	return nil
}
