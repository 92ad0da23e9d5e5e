package mongolog

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// storeFormat numbers the documents of a store, and the rules by which sidecars share it. It is in
// the store's document in meta, and a store with another number is refused.
const storeFormat = 1

// meta is the store's own document.
type meta struct {
	StoreID string `bson:"id"`
	Format  int    `bson:"format"`
}

// readMeta reads and checks the store's document; mongo.ErrNoDocuments for a new store.
func (l *Log) readMeta(ctx context.Context) (m meta, err error) {
	if err := l.db.Collection(l.opts.Prefix+metaName).FindOne(ctx, byID("store")).Decode(&m); err != nil {
		return meta{}, err
	}
	if m.Format != storeFormat {
		return meta{}, &UnsupportedError{fmt.Sprintf("it has format %d, and this version of Sluice reads format %d: run the version that made it, or name another database",
			m.Format, storeFormat)}
	}
	return m, nil
}

// ensureMeta is readMeta, and inserts the document into a new store.
func (l *Log) ensureMeta(ctx context.Context) (meta, error) {
	m, err := l.readMeta(ctx)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return m, err
	}
	coll := l.db.Collection(l.opts.Prefix+metaName, options.Collection().SetWriteConcern(majorityWrites))
	_, err = coll.InsertOne(ctx, bson.D{{Key: "_id", Value: "store"}, {Key: "id", Value: uuid.NewString()}, {Key: "format", Value: storeFormat}})
	if err != nil && !mongo.IsDuplicateKeyError(err) { // another sidecar may have inserted it
		return meta{}, err
	}
	return l.readMeta(ctx)
}
