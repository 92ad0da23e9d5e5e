package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// storeFormat numbers the documents of a store, and the rules by which sidecars share it. It is in
// the store's document in meta, and a store with another number is refused.
const storeFormat = 1

// meta is the store's own document.
type meta struct {
	StoreID string `bson:"id"`
	Format  int    `bson:"format"`
}

// readMeta reads and checks the store's document, once a majority has it: spools keep its id.
// mongo.ErrNoDocuments for a new store.
func (su *Setup) readMeta(ctx context.Context) (m meta, err error) {
	if err := su.store.Majority(core.Meta).FindOne(ctx, core.ByID("store")).Decode(&m); err != nil {
		return meta{}, err
	}
	if m.Format != storeFormat {
		return meta{}, &core.UnsupportedError{Reason: fmt.Sprintf("it has format %d, and this version of Sluice reads format %d: "+
			"run the version that made it, or name another database", m.Format, storeFormat)}
	}
	return m, nil
}

// ensureMeta is readMeta, and inserts the document into a new store.
func (su *Setup) ensureMeta(ctx context.Context) (meta, error) {
	m, err := su.readMeta(ctx)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return m, err
	}
	doc := append(core.ByID("store"), bson.E{Key: "id", Value: uuid.NewString()}, bson.E{Key: "format", Value: storeFormat})
	if _, err := su.store.InsertNew(ctx, core.Meta, []bson.D{doc}); err != nil { // another sidecar may have inserted it
		return meta{}, err
	}
	return su.readMeta(ctx)
}
