package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/internal/pause"
)

// secretDoc is a secret of the control planes.
type secretDoc struct {
	Name   string `bson:"_id"`
	Secret []byte `bson:"secret"`
}

// Secret implements store.Secrets. One that forbids the insert may be on its way to
// the majority still, where it cannot be read: until that is settled, both are
// tried.
func (s *Store) Secret(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	const op = "read a secret of the control planes"
	for {
		var there secretDoc
		err := s.secrets.FindOne(ctx, byID(name)).Decode(&there)
		if err == nil {
			return there.Secret, nil
		}
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return nil, failed(ctx, op, err)
		}
		_, err = s.secrets.InsertOne(ctx, bson.D{{Key: "_id", Value: name}, {Key: "secret", Value: bson.Binary{Data: fresh}}})
		if err == nil {
			return fresh, nil
		}
		if !mongo.IsDuplicateKeyError(err) {
			return nil, failed(ctx, op, err)
		}
		if !pause.For(ctx, settleEvery) {
			return nil, failed(ctx, op, context.Cause(ctx))
		}
	}
}
