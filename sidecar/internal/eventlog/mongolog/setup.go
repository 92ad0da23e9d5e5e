package mongolog

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// prepare detects the server and creates missing collections and indexes. One call does this, and
// concurrent calls wait for it.
func (l *Log) prepare(ctx context.Context) error {
	select {
	case l.setupTurn <- struct{}{}:
		defer func() { <-l.setupTurn }()
	case <-ctx.Done():
		return l.unavailable(ctx, "connect", ctx.Err())
	}
	if l.setup.Load() != nil {
		return nil
	}
	var s setup
	var err error
	if s.engine, err = l.detect(ctx); err != nil {
		return l.unavailable(ctx, "connect", err)
	}
	m, err := l.ensureMeta(ctx)
	if err != nil {
		return l.unavailable(ctx, "look at the store's format", err)
	}
	s.storeID = m.StoreID
	if s.engine.uncapped, err = l.createSignals(ctx); err != nil {
		return l.unavailable(ctx, "create the collection of signals", err)
	}
	// On other servers a tailable cursor may make the server read the collection over and over.
	s.engine.uncapped = s.engine.uncapped || !s.engine.mongo
	if s.unindexed, err = l.ensureIndexes(ctx, s.engine, maxIndexOnConnect); err != nil {
		return l.unavailable(ctx, "look for the indexes", err)
	}
	l.setup.Store(&s)
	return nil
}

// engine describes the server; it must be called between begin and its end.
func (l *Log) engine() engine { return l.setup.Load().engine }

// StoreID identifies the store, with the same id for every sidecar on it. It is empty until the log
// has first reached the server.
func (l *Log) StoreID() string {
	if s := l.setup.Load(); s != nil {
		return s.storeID
	}
	return ""
}

// detect asks the server for its version and type.
func (l *Log) detect(ctx context.Context) (engine, error) {
	var build struct {
		Version  string   `bson:"version"`
		FerretDB bson.Raw `bson:"ferretdb"`
		Version2 string   `bson:"ferretdbVersion"`
	}
	if err := l.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return engine{}, fmt.Errorf("buildInfo: %w", err)
	}
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	if err := l.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return engine{}, fmt.Errorf("hello: %w", err)
	}
	e := engine{version: build.Version, maxOrdered: 1000}
	e.mongo = build.FerretDB == nil && build.Version2 == ""
	e.sharded = hello.Msg == "isdbgrid"
	e.replicated = hello.SetName != "" || e.sharded
	e.ttl, e.decimals = e.mongo, e.mongo
	if !e.mongo {
		e.maxOrdered = 100
	}
	return e, nil
}

// createSignals creates missing capped collections of signals. It reports whether signals cannot
// use capped collections: not every server has them, and a tool that restored the store may have
// created plain collections instead.
func (l *Log) createSignals(ctx context.Context) (uncapped bool, err error) {
	var names bson.A
	for shard := range signalShards {
		names = append(names, l.signalsName(shard))
	}
	there, err := l.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return false, err
	}
	for _, spec := range there {
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); !capped {
			if !l.told[spec.Name] {
				l.told[spec.Name] = true
				l.opts.Logger.Warn("the collection of signals is not capped, so that sidecars poll for signals; drop it, and restart them",
					"collection", spec.Name)
			}
			return true, nil
		}
		names = slices.DeleteFunc(names, func(name any) bool { return name == spec.Name })
	}
	for _, name := range names {
		err := l.db.CreateCollection(ctx, name.(string), options.CreateCollection().SetCapped(true).SetSizeInBytes(signalsBytes))
		switch {
		case err == nil, hasCode(err, codeNamespaceExists):
		case hasCode(err, notOffered...):
			if !l.told[signalsName] {
				l.told[signalsName] = true
				l.opts.Logger.Info("the store has no capped collections, so that sidecars poll for signals", "error", err)
			}
			return true, nil
		default:
			return false, err
		}
	}
	return false, nil
}

// signalsName is the name of one of the collections of signals.
func (l *Log) signalsName(shard int) string {
	return fmt.Sprintf("%s%s_%d", l.opts.Prefix, signalsName, shard)
}

// signalsBytes bounds a capped collection of signals: some thousand of them.
const signalsBytes = 256 << 10
