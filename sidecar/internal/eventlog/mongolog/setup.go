package mongolog

import (
	"context"
	"errors"
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
	s, err := l.setUp(ctx)
	if err == nil {
		l.setup.Store(&s)
		return nil
	}
	if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported && l.refusal == nil {
		l.refusal = err
		close(l.unusable)
	}
	return l.unavailable(ctx, "connect", err)
}

// setUp checks the server and the store, and then creates what is missing.
func (l *Log) setUp(ctx context.Context) (s setup, err error) {
	if s.server, err = l.detect(ctx); err != nil {
		return s, err
	}
	m, err := l.ensureMeta(ctx)
	if err != nil {
		return s, fmt.Errorf("look at the store's format: %w", err)
	}
	s.storeID = m.StoreID
	if err := l.createSignals(ctx); err != nil {
		return s, fmt.Errorf("create the collections of signals: %w", err)
	}
	if s.unindexed, err = l.ensureIndexes(ctx, maxIndexOnConnect); err != nil {
		return s, fmt.Errorf("look for the indexes: %w", err)
	}
	return s, nil
}

// AwaitRefusal waits until the store turns out to be one that the log can never use, and returns
// the *UnsupportedError. It returns nil when ctx ends.
func (l *Log) AwaitRefusal(ctx context.Context) error {
	select {
	case <-l.unusable:
		return l.refusal
	case <-ctx.Done():
		return nil
	}
}

// sharded reports whether a mongos answers; it must be called between begin and its end.
func (l *Log) sharded() bool { return l.setup.Load().server.sharded }

// StoreID identifies the store, with the same id for every sidecar on it. It is empty until the log
// has first reached the server.
func (l *Log) StoreID() string {
	if s := l.setup.Load(); s != nil {
		return s.storeID
	}
	return ""
}

// createSignals creates missing capped collections of signals. A tool that restored the store may
// have created plain ones, which cannot be followed. These are replaced: signals are of use for a
// moment only.
func (l *Log) createSignals(ctx context.Context) error {
	var names bson.A
	for shard := range signalShards {
		names = append(names, l.signalsName(shard))
	}
	there, err := l.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return err
	}
	for _, spec := range there {
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			names = slices.DeleteFunc(names, func(name any) bool { return name == spec.Name })
			continue
		}
		l.opts.Logger.Warn("a collection of signals is not capped, and is replaced", "collection", spec.Name)
		if err := l.db.Collection(spec.Name).Drop(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		err := l.db.CreateCollection(ctx, name.(string), options.CreateCollection().SetCapped(true).SetSizeInBytes(signalsBytes))
		switch {
		case err == nil, hasCode(err, codeNamespaceExists):
		case hasCode(err, notOffered...):
			return &UnsupportedError{"the server has no capped collections: " + err.Error()}
		default:
			return err
		}
	}
	return nil
}

// signalsName is the name of one of the collections of signals.
func (l *Log) signalsName(shard int) string {
	return fmt.Sprintf("%s%s_%d", l.opts.Prefix, signalsName, shard)
}

// signalsBytes bounds a capped collection of signals: some thousand of them.
const signalsBytes = 256 << 10
