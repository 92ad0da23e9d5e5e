package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

type presenceDoc struct {
	Self string `bson:"_id"`
	Beat int64  `bson:"beat"`
	Doc  []byte `bson:"doc"`
}

// Put implements store.Presence.
func (s *Store) Put(ctx context.Context, self string, doc []byte) error {
	if len(doc) > store.MaxCommitBytes {
		return store.ErrTooLarge
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	update := bson.D{
		{Key: "$set", Value: bson.D{{Key: "doc", Value: bson.Binary{Data: doc}}}},
		{Key: "$inc", Value: bson.D{{Key: "beat", Value: int64(1)}}},
	}
	if _, err := s.presence.UpdateOne(ctx, byID(self), update, options.UpdateOne().SetUpsert(true)); err != nil {
		return failed(ctx, "tell other control planes", err)
	}
	return nil
}

// List implements store.Presence.
func (s *Store) List(ctx context.Context) ([]store.PresenceDoc, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	cursor, err := s.presence.Find(ctx, bson.D{})
	if err != nil {
		return nil, failed(ctx, "ask for other control planes", err)
	}
	var found []presenceDoc
	if err := cursor.All(ctx, &found); err != nil {
		return nil, failed(ctx, "ask for other control planes", err)
	}
	docs := make([]store.PresenceDoc, len(found))
	for i, d := range found {
		docs[i] = store.PresenceDoc{Self: d.Self, Doc: d.Doc, Beat: d.Beat}
	}
	store.SortPresence(docs)
	return docs, nil
}

// Remove implements store.Presence.
func (s *Store) Remove(ctx context.Context, self string) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := s.presence.DeleteOne(ctx, byID(self)); err != nil {
		return failed(ctx, "leave the other control planes", err)
	}
	return nil
}
