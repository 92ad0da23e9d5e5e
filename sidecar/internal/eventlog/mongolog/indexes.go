package mongolog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// index is one index of one collection.
type index struct {
	collection string
	keys       bson.D
	unique     bool
	expires    bool   // the server removes documents at the time in this field, if they have it
	partial    bson.D // selects the documents that have entries; nil: all have
}

// name joins the names of the index's fields.
func (x index) name() string {
	var fields []string
	for _, k := range x.keys {
		fields = append(fields, k.Key)
	}
	return strings.Join(fields, "_")
}

// model is the form in which the driver creates the index.
func (x index) model(name string) mongo.IndexModel {
	o := options.Index().SetName(name)
	if x.unique {
		o.SetUnique(true)
	}
	if x.expires {
		o.SetExpireAfterSeconds(0).SetSparse(true)
	}
	if x.partial != nil {
		o.SetPartialFilterExpression(x.partial)
	}
	return mongo.IndexModel{Keys: x.keys, Options: o}
}

// live selects the heads and the documents of events that nothing has removed. It has the form that
// partial indexes need, so these indexes have no entries of stubs and voids.
var live = bson.E{Key: document.FieldGone, Value: nil}

// The indexes of events, as hints. All but the first have live events alone.
var (
	// A seq is taken once. It is also the read order where seqs may be missing.
	bySeq = ascending(document.FieldTopic, document.FieldPartition, document.FieldSeq)
	// The read order elsewhere. It includes ts for seeks, which then read only the events that they
	// look for.
	byLiveSeq = append(slices.Clip(bySeq), bson.E{Key: document.FieldTS, Value: 1})
	// Replay and export, of all keys or one.
	byTS    = ascending(document.FieldTopic, document.FieldTS, document.FieldEventID)
	byKeyTS = ascending(document.FieldTopic, document.FieldKey, document.FieldTS, document.FieldEventID)
	// The latest event of a key, and compaction.
	byKeySeq = ascending(document.FieldTopic, document.FieldKey, document.FieldSeq)
)

func ascending(fields ...string) (keys bson.D) {
	for _, f := range fields {
		keys = append(keys, bson.E{Key: f, Value: 1})
	}
	return keys
}

// hint names an index to read by. If the store lacks some indexes, the server chooses.
func (l *Log) hint(index bson.D) any {
	if l.setup.Load().unindexed {
		return nil
	}
	return index
}

// indexes are all indexes that the log needs, except those on _id.
func indexes() []index {
	all := bson.D{live}
	keyed := bson.D{live, {Key: document.FieldKey, Value: bson.D{{Key: "$exists", Value: true}}}}
	scheduled := bson.D{isScheduled}
	return []index{
		{collection: eventsName, keys: bySeq, unique: true},
		{collection: epochsName, keys: ascending("topic", "group", "partition", "number"), unique: true},
		{collection: eventsName, keys: byLiveSeq, partial: all},
		{collection: eventsName, keys: byTS, partial: all},
		{collection: eventsName, keys: byKeyTS, partial: keyed},
		{collection: eventsName, keys: byKeySeq, partial: keyed},
		{collection: eventsName, keys: byDue, partial: scheduled},
		{collection: eventsName, keys: byTopicDue, partial: scheduled},
		{collection: eventsName, keys: ascending(document.FieldExpireAt), expires: true},
		{collection: marksName, keys: ascending(document.FieldExpireAt), expires: true},
		{collection: epochsName, keys: ascending(document.FieldExpireAt), expires: true},
	}
}

// maxIndexOnConnect bounds the size of a collection for which a sidecar builds an index while it
// connects. The server aborts an index build when the caller's time is over, so a larger build
// would never finish.
const maxIndexOnConnect = 50_000

// errNotMigrated is advice about a store that cannot be used as it is.
var errNotMigrated = errors.New("run \"sluice-sidecar migrate --store …\" once, also while sidecars use the store, and follow its messages")

// ensureIndexes creates the indexes that are missing in collections of at most so many documents. A
// migration has to create the others: the log does not work without the unique indexes, and is slow
// (unindexed) without the rest.
func (l *Log) ensureIndexes(ctx context.Context, most int64) (unindexed bool, _ error) {
	stored := map[string][]storedIndex{}
	for _, x := range indexes() {
		name := l.opts.Prefix + x.collection
		if _, listed := stored[name]; !listed {
			list, err := l.storedIndexes(ctx, x.collection)
			if err != nil {
				return false, err
			}
			stored[name] = list
		}
		wrong, err := l.ensureIndex(ctx, x, stored[name], most)
		if err != nil {
			return false, fmt.Errorf("index %s of %s: %w", x.name(), name, err)
		}
		if wrong == "" {
			continue
		}
		err = fmt.Errorf("collection %s %s; %w", name, wrong, errNotMigrated)
		if !l.told[name+x.name()] {
			l.told[name+x.name()] = true
			if x.unique {
				l.opts.Logger.Error("the store cannot be used without an index", "error", err)
			} else {
				l.opts.Logger.Warn("the store is slow without an index", "error", err)
			}
		}
		if x.unique {
			return false, err
		}
		unindexed = unindexed || !x.expires
	}
	return unindexed, nil
}

// ensureIndex creates an index if it is missing and the collection has at most so many documents.
// wrong says how the stored index differs, or that it is missing; "" if it is right.
func (l *Log) ensureIndex(ctx context.Context, x index, stored []storedIndex, most int64) (wrong string, err error) {
	want := x.spec()
	if s := like(x, stored); s != nil {
		if differs := s.differs(want); differs != "" {
			return fmt.Sprintf("has a wrong index %s: %s", s.name, differs), nil
		}
		return "", l.awaitIndex(ctx, x, *s)
	}
	coll := l.db.Collection(l.opts.Prefix + x.collection)
	n, err := coll.EstimatedDocumentCount(ctx)
	if err != nil {
		return "", err
	}
	if n > most {
		return fmt.Sprintf("has about %d documents and no %sindex on (%s)", n, choose(x.unique, "unique ", ""), want.keys), nil
	}
	_, err = coll.Indexes().CreateOne(ctx, x.model(x.name()))
	switch {
	case isIndexConflict(err):
		return fmt.Sprintf("has a wrong index in place of %s: %v", x.name(), err), nil
	case hasCode(err, notOffered...):
		return "", &UnsupportedError{fmt.Sprintf("the server takes no index %s of %s: %v", x.name(), coll.Name(), err)}
	}
	return "", err
}

// like finds the stored index that stands for this one: an equal index under any name, since the
// server accepts no second one; else an index with its name, or with its keys, since hints name an
// index by its keys.
func like(x index, stored []storedIndex) *storedIndex {
	want := x.spec()
	at := slices.IndexFunc(stored, func(s storedIndex) bool { return s.differs(want) == "" })
	if at < 0 {
		at = slices.IndexFunc(stored, func(s storedIndex) bool { return s.name == x.name() || s.keys == want.keys })
	}
	if at < 0 {
		return nil
	}
	return &stored[at]
}

// awaitIndex waits for a stored unique index. MongoDB also lists indexes that it is still building,
// and these do not enforce uniqueness yet. Creating the index again waits until it is complete, and
// otherwise does nothing.
func (l *Log) awaitIndex(ctx context.Context, x index, s storedIndex) error {
	if !s.unique {
		return nil
	}
	_, err := l.db.Collection(l.opts.Prefix+x.collection).Indexes().CreateOne(ctx, x.model(s.name))
	if hasCode(err, codeUnauthorized) {
		return nil // another sidecar has created it, and it may be complete
	}
	return err
}

// isIndexConflict reports whether another index has the name, or the keys.
func isIndexConflict(err error) bool {
	return hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict)
}
