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

// Secret implements store.Secrets. The document that prevents the insert may not have reached the
// majority yet, where it can be read: until that is settled, Secret tries both.
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
