package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

type presenceDoc struct {
	Self   string    `bson:"_id"`
	Beat   int64     `bson:"beat"`
	Doc    []byte    `bson:"doc"`
	Left   bool      `bson:"left"`
	LeftAt time.Time `bson:"left_at"`
}

// leftKept is many times the time that a request can be under way.
const leftKept = 24 * time.Hour

// there selects the control planes that were not removed.
var there = bson.E{Key: "left", Value: bson.D{{Key: "$ne", Value: true}}}

// Put replaces the document of self, and counts a beat; only one handle of the store puts it. A
// document is at most MaxCommitBytes. After an error the document may be there, now or later, but
// never in place of a later one.
func (s *Store) Put(ctx context.Context, self string, doc []byte) error {
	const op = "tell other control planes"
	if len(doc) > store.MaxCommitBytes {
		return store.ErrTooLarge
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	s.mu.Lock()
	s.beats[self]++
	beat := s.beats[self]
	s.mu.Unlock()
	earlier := bson.E{Key: "beat", Value: bson.D{{Key: "$lt", Value: beat}}}
	put := bson.D{
		{Key: "$set", Value: bson.D{{Key: "doc", Value: bson.Binary{Data: doc}}, {Key: "beat", Value: beat}}},
		{Key: "$unset", Value: bson.D{{Key: "left", Value: ""}, {Key: "left_at", Value: ""}}},
	}
	_, err = s.presence.UpdateOne(ctx, append(byID(self), there, earlier), put, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		var stored presenceDoc
		finding := s.presence.FindOne(ctx, byID(self)).Decode(&stored)
		switch {
		case finding != nil: // a majority does not have it yet
		case stored.Left: // others took it for gone, and it is not
			removed := bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: stored.LeftAt}}
			_, err = s.presence.UpdateOne(ctx, append(append(byID(self), removed...), earlier), put)
		case stored.Beat >= beat: // an earlier try, whose answer was lost
			err = nil
		}
	}
	if err != nil {
		return failed(ctx, op, err)
	}
	return nil
}

// List returns all documents, also those of control planes that are gone, ascending by Self.
func (s *Store) List(ctx context.Context) ([]store.PresenceDoc, error) {
	found, err := all[presenceDoc](ctx, s, s.presence, "ask for other control planes", there)
	if err != nil {
		return nil, err
	}
	docs := make([]store.PresenceDoc, len(found))
	for i, d := range found {
		docs[i] = store.PresenceDoc{Self: d.Self, Doc: d.Doc, Beat: d.Beat}
	}
	return docs, nil
}

// Remove removes the document of a control plane that has been gone for long, if it still has this
// beat. Only a Put that begins later restores it.
func (s *Store) Remove(ctx context.Context, self string, beat int64) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	now := time.Now()
	gone := append(byID(self), there, bson.E{Key: "beat", Value: beat})
	left := bson.D{
		{Key: "$set", Value: bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: now}}},
		{Key: "$unset", Value: bson.D{{Key: "doc", Value: ""}}},
	}
	long := bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: bson.D{{Key: "$lt", Value: now.Add(-leftKept)}}}}
	if _, err = s.presence.UpdateOne(ctx, gone, left); err == nil {
		_, err = s.presence.DeleteMany(ctx, long)
	}
	if err != nil {
		return failed(ctx, "remove a control plane that is gone", err)
	}
	return nil
}
