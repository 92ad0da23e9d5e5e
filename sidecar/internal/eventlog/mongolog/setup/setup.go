// Package setup checks the server and the format of a store, and creates its collections and indexes.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// Setup prepares a store.
type Setup struct {
	store *core.Store
	told  map[string]bool // the messages that were logged already
}

// New makes the Setup of a store.
func New(s *core.Store) *Setup { return &Setup{s, map[string]bool{}} }

// Prepare checks the server and the store, and then creates what is missing. Only one call runs at a
// time.
func (su *Setup) Prepare(ctx context.Context) (f core.Facts, err error) {
	server, err := su.detect(ctx)
	if err != nil {
		return f, err
	}
	m, err := su.ensureMeta(ctx)
	if err != nil {
		return f, fmt.Errorf("look at the store's format: %w", err)
	}
	if err := su.createSignals(ctx); err != nil {
		return f, fmt.Errorf("create the collections of signals: %w", err)
	}
	f = core.Facts{StoreID: m.StoreID, Sharded: server.sharded}
	if f.Unindexed, err = su.ensureIndexes(ctx, maxIndexOnConnect); err != nil {
		return f, fmt.Errorf("look for the indexes: %w", err)
	}
	return f, nil
}

// createSignals creates missing capped collections of signals. A tool that restored the store may
// have created plain ones, which cannot be followed. These are replaced: signals are of use for a
// moment only.
func (su *Setup) createSignals(ctx context.Context) error {
	var names bson.A
	for shard := range core.SignalShards {
		names = append(names, core.SignalsName(shard))
	}
	there, err := su.store.DB.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return err
	}
	for _, spec := range there {
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			names = slices.DeleteFunc(names, func(name any) bool { return name == spec.Name })
			continue
		}
		su.store.Logger.Warn("a collection of signals is not capped, and is replaced", "collection", spec.Name)
		if err := su.store.DB.Collection(spec.Name).Drop(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		err := su.store.DB.CreateCollection(ctx, name.(string), options.CreateCollection().SetCapped(true).SetSizeInBytes(signalsBytes))
		switch {
		case err == nil, core.HasCode(err, core.CodeNamespaceExists):
		case core.IsNotOffered(err):
			return &core.UnsupportedError{Reason: "the server has no capped collections: " + err.Error()}
		default:
			return err
		}
	}
	return nil
}

// signalsBytes bounds a capped collection of signals: some thousand of them.
const signalsBytes = 256 << 10

// server describes the MongoDB that answers.
type server struct {
	version string
	sharded bool // it is a mongos
}

// String is the server's name for people.
func (s server) String() string {
	if s.sharded {
		return "MongoDB " + s.version + ", sharded"
	}
	return "MongoDB " + s.version + ", replica set"
}

// detect asks the server for its version and type. A server that the log cannot use is an
// UnsupportedError.
func (su *Setup) detect(ctx context.Context) (server, error) {
	var build struct {
		Version         string   `bson:"version"`
		FerretDB        bson.Raw `bson:"ferretdb"`
		FerretDBVersion string   `bson:"ferretdbVersion"`
	}
	if err := su.store.Run(ctx, "buildInfo", &build); err != nil {
		return server{}, cmp.Or(su.store.Refusal(), err)
	}
	var hello struct {
		SetName    string `bson:"setName"`
		Msg        string `bson:"msg"`
		ReplicaSet bool   `bson:"isreplicaset"` // it waits to be initiated
	}
	if err := su.store.Run(ctx, "hello", &hello); err != nil {
		return server{}, err
	}
	s := server{version: build.Version, sharded: hello.Msg == "isdbgrid"}
	switch {
	case build.FerretDB != nil || build.FerretDBVersion != "":
		return s, &core.UnsupportedError{Reason: "it is FerretDB, which lacks capped collections and causally consistent sessions; " +
			"Sluice needs MongoDB 4.4 or later"}
	case hello.SetName != "" || s.sharded:
		return s, nil
	case hello.ReplicaSet:
		return s, errors.New("its replica set is not initiated yet (mongosh --eval 'rs.initiate()')")
	}
	return s, &core.UnsupportedError{Reason: "it is MongoDB " + s.version + " on its own, and Sluice needs a replica set: " + core.OneMember}
}

// storeFormat numbers the documents of a store, and the rules by which sidecars share it. It is in
// the store's document in meta, and a store with another number is refused.
const storeFormat = 1

// meta is the store's own document.
type meta struct {
	StoreID string `bson:"id"`
	Format  int    `bson:"format"`
}

// readMeta reads and checks the store's document; mongo.ErrNoDocuments for a new store.
func (su *Setup) readMeta(ctx context.Context) (m meta, err error) {
	if err := su.store.DB.Collection(core.Meta).FindOne(ctx, core.ByID("store")).Decode(&m); err != nil {
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
	_, err = su.store.Written(core.Meta, core.MajorityWrites).InsertOne(ctx, doc)
	if err != nil && !mongo.IsDuplicateKeyError(err) { // another sidecar may have inserted it
		return meta{}, err
	}
	return su.readMeta(ctx)
}
