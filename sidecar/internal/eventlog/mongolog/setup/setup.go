// Package setup checks the server and the format of a store, and creates its collections and indexes.
package setup

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// Setup prepares a store.
type Setup struct {
	store  *core.Store
	logged map[string]bool // messages about indexes, so that each comes once
}

// New makes the Setup of a store.
func New(s *core.Store) *Setup { return &Setup{s, map[string]bool{}} }

// Prepare checks the server and the store, and then creates what is missing. Only one call runs at a
// time.
func (su *Setup) Prepare(ctx context.Context) (f core.Facts, err error) {
	sharded, err := su.detect(ctx)
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
	f = core.Facts{StoreID: m.StoreID, Sharded: sharded}
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
