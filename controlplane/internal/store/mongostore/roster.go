package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// rosterDoc is a sidecar; with Life "" it marks one that has left.
type rosterDoc struct {
	Key  string `bson:"_id"`
	Life string `bson:"life"`
	Doc  []byte `bson:"doc"`
	Left string `bson:"left"` // the life that has left last
}

// Enter implements store.Roster.
func (s *Store) Enter(ctx context.Context, e store.RosterEntry) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	put := bson.D{{Key: "$set", Value: bson.D{{Key: "life", Value: e.Life}, {Key: "doc", Value: bson.Binary{Data: e.Doc}}}}}
	notLeft := bson.E{Key: "left", Value: bson.D{{Key: "$ne", Value: e.Life}}}
	_, err = s.roster.UpdateOne(ctx, append(byID(e.Key), notLeft), put, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		var there rosterDoc
		if s.roster.FindOne(ctx, byID(e.Key)).Decode(&there) == nil && there.Left == e.Life {
			return nil
		}
	}
	if err != nil {
		return failed(ctx, "remember a sidecar", err)
	}
	return nil
}

// Leave implements store.Roster. The mark of a sidecar that has left stays for leftKept, without
// its document.
func (s *Store) Leave(ctx context.Context, key, life string) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	const op = "forget a sidecar"
	if life == "" {
		if _, err := s.roster.DeleteOne(ctx, byID(key)); err != nil {
			return failed(ctx, op, err)
		}
		return nil
	}
	now := time.Now()
	gone := bson.D{
		{Key: "$set", Value: bson.D{{Key: "life", Value: ""}, {Key: "left", Value: life}, {Key: "left_at", Value: now}}},
		{Key: "$unset", Value: bson.D{{Key: "doc", Value: ""}}},
	}
	if _, err = s.roster.UpdateOne(ctx, byID(key), gone, options.UpdateOne().SetUpsert(true)); err == nil {
		long := bson.D{{Key: "life", Value: ""}, {Key: "left_at", Value: bson.D{{Key: "$lt", Value: now.Add(-leftKept)}}}}
		_, err = s.roster.DeleteMany(ctx, long)
	}
	if err != nil {
		return failed(ctx, op, err)
	}
	return nil
}

// Entered implements store.Roster.
func (s *Store) Entered(ctx context.Context) ([]store.RosterEntry, error) {
	notLeft := bson.E{Key: "life", Value: bson.D{{Key: "$ne", Value: ""}}}
	found, err := all[rosterDoc](ctx, s, s.roster, "read the list of sidecars", notLeft)
	if err != nil {
		return nil, err
	}
	entries := make([]store.RosterEntry, len(found))
	for i, d := range found {
		entries[i] = store.RosterEntry{Key: d.Key, Life: d.Life, Doc: d.Doc}
	}
	return entries, nil
}
