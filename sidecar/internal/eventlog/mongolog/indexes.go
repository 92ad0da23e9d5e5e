package mongolog

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// index is one index of one collection.
type index struct {
	collection string
	name       string
	model      mongo.IndexModel
}

// indexes are all that the log wants to have, but for those on _id.
func (l *Log) indexes(e engine) []index {
	ix := []index{
		// A seq is taken once; and the order of reads.
		newIndex(eventsName, "topic_partition_seq", true, "topic", "partition", "seq"),
		// Replay and export.
		newIndex(eventsName, "topic_ts_id", false, "topic", "ts", "id"),
		// Replay of one key, and compaction.
		newIndex(eventsName, "topic_key_ts_id", false, "topic", "key", "ts", "id"),
		newIndex(epochsName, "topic_group_partition_number", true, "topic", "group", "partition", "number"),
	}
	if e.ttl {
		for _, c := range []string{eventsName, marksName} {
			x := newIndex(c, "expireAt", false, "expireAt")
			x.model.Options.SetExpireAfterSeconds(0).SetSparse(true) // what is kept has no entry
			ix = append(ix, x)
		}
	}
	return ix
}

func newIndex(collection, name string, unique bool, fields ...string) index {
	var keys bson.D
	for _, f := range fields {
		keys = append(keys, bson.E{Key: f, Value: 1})
	}
	o := options.Index().SetName(name)
	if unique {
		o.SetUnique(true)
	}
	return index{collection, name, mongo.IndexModel{Keys: keys, Options: o}}
}

// maxIndexOnConnect bounds the documents of a collection of which a sidecar
// makes an index while it connects. The server gives up the making of an index
// when whoever asked for it runs out of time, so of more it would never get
// done.
const maxIndexOnConnect = 50_000

// errNotMigrated says what to do about a store that cannot be used as it is.
var errNotMigrated = errors.New("run \"sluice-sidecar migrate --store …\" once, which may be while sidecars use the store")

// ensureIndexes creates the indexes that are missing in collections of at most
// so many documents. One of the others has to be made by a migration: without
// those that keep appends and owners apart the log does not work at all,
// without the rest it is slow.
func (l *Log) ensureIndexes(ctx context.Context, e engine, most int64) error {
	m := migration{log: l, engine: e}
	stored := map[string][]storedIndex{}
	for _, x := range l.indexes(e) {
		name := l.opts.Prefix + x.collection
		if _, listed := stored[name]; !listed {
			list, err := m.storedIndexes(ctx, x.collection)
			if err != nil {
				return err
			}
			stored[name] = list
		}
		wrong, err := l.ensureIndex(ctx, e, x, stored[name], most)
		if err != nil {
			return fmt.Errorf("index %s of %s: %w", x.name, name, err)
		}
		if wrong == "" {
			continue
		}
		err = fmt.Errorf("collection %s %s; %w", name, wrong, errNotMigrated)
		unusable := specOf(x.model).unique
		if !l.told[name+x.name] {
			l.told[name+x.name] = true
			if unusable {
				l.opts.Logger.Error("the store cannot be used without an index", "error", err)
			} else {
				l.opts.Logger.Warn("the store is slow without an index", "error", err)
			}
		}
		if unusable {
			return err
		}
	}
	return nil
}

// ensureIndex creates an index if it is missing and the collection has at most
// so many documents. wrong says what is wrong with what is there; "" if nothing.
func (l *Log) ensureIndex(ctx context.Context, e engine, x index, stored []storedIndex, most int64) (wrong string, err error) {
	want := specOf(x.model)
	for _, s := range stored {
		switch {
		case s.differs(want) == "":
			return "", l.awaitIndex(ctx, e, x, s)
		case want.expires == "" && s.differs(specOf(x.standIn().model)) == "":
			return "", nil // a migration is under way
		}
	}
	for _, s := range stored {
		if s.name == x.name {
			return fmt.Sprintf("has an index %s that is not what it should be: %s", x.name, s.differs(want)), nil
		}
	}
	coll := l.db.Collection(l.opts.Prefix + x.collection)
	n, err := coll.EstimatedDocumentCount(ctx)
	if err != nil {
		return "", err
	}
	if n > most {
		return fmt.Sprintf("has about %d documents and no %sindex on (%s)", n, choose(want.unique, "unique ", ""), want.keys), nil
	}
	if _, err = coll.Indexes().CreateOne(ctx, x.model); isIndexConflict(err) {
		return fmt.Sprintf("has an index in place of %s that is not what it should be: %v", x.name, err), nil
	}
	return "", err
}

// awaitIndex waits for a unique index that is there. MongoDB lists those that
// are still being made, too, which keep nothing unique before they are done;
// to create it again waits for that, and does nothing if it is done.
func (l *Log) awaitIndex(ctx context.Context, e engine, x index, s storedIndex) error {
	if !e.mongo || !s.unique {
		return nil
	}
	x.model.Options.SetName(s.name)
	_, err := l.db.Collection(l.opts.Prefix+x.collection).Indexes().CreateOne(ctx, x.model)
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(codeUnauthorized) {
		return nil // somebody else has made it, and may have finished it
	}
	return err
}

// isIndexConflict reports that another index has the name, or the keys.
func isIndexConflict(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) &&
		(server.HasErrorCode(codeIndexOptionsConflict) || server.HasErrorCode(codeIndexKeySpecsConflict))
}
