package setup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
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

// indexes are all indexes that the log needs, except those on _id.
func indexes() []index {
	all := bson.D{events.Live}
	keyed := bson.D{events.Live, {Key: document.FieldKey, Value: bson.D{{Key: "$exists", Value: true}}}}
	scheduled := bson.D{events.Scheduled}
	return []index{
		{collection: core.Events, keys: events.BySeq, unique: true},
		{collection: core.Epochs, keys: events.Ascending("topic", "group", "partition", "number"), unique: true},
		{collection: core.Events, keys: events.ByLiveSeq, partial: all},
		{collection: core.Events, keys: events.ByTS, partial: all},
		{collection: core.Events, keys: events.ByKeyTS, partial: keyed},
		{collection: core.Events, keys: events.ByKeySeq, partial: keyed},
		{collection: core.Events, keys: events.ByDue, partial: scheduled},
		{collection: core.Events, keys: events.ByTopicDue, partial: scheduled},
		{collection: core.Events, keys: events.Ascending(document.FieldExpireAt), expires: true},
		{collection: core.Marks, keys: events.Ascending(document.FieldExpireAt), expires: true},
		{collection: core.Epochs, keys: events.Ascending(document.FieldExpireAt), expires: true},
	}
}

// maxIndexOnConnect bounds the size of a collection for which a sidecar builds an index while it
// connects. The server aborts an index build when the caller's time is over, so a larger build
// would never finish.
const maxIndexOnConnect = 50_000

// ensureIndexes creates the indexes that are missing in collections of at most so many documents.
// The others are for people to create: the log does not work without the unique indexes, and is slow
// (unindexed) without the rest.
func (su *Setup) ensureIndexes(ctx context.Context, most int64) (unindexed bool, _ error) {
	stored := map[string][]storedIndex{}
	for _, x := range indexes() {
		if _, listed := stored[x.collection]; !listed {
			list, err := su.storedIndexes(ctx, x.collection)
			if err != nil {
				return false, err
			}
			stored[x.collection] = list
		}
		wrong, err := su.ensureIndex(ctx, x, stored[x.collection], most)
		if err != nil {
			return false, fmt.Errorf("index %s of %s: %w", x.name(), x.collection, err)
		}
		if wrong == "" {
			continue
		}
		err = fmt.Errorf("collection %s %s%s", x.collection, wrong, x.inShell())
		if !su.logged[x.collection+x.name()] {
			su.logged[x.collection+x.name()] = true
			if x.unique {
				su.store.Logger.Error("the store cannot be used without an index", "error", err)
			} else {
				su.store.Logger.Warn("the store is slow without an index", "error", err)
			}
		}
		if x.unique {
			return false, err
		}
		unindexed = unindexed || !x.expires
	}
	return unindexed, nil
}

// inShell is the last part of a command in mongosh: it creates the index.
func (x index) inShell() string {
	o := bson.D{{Key: "name", Value: x.name()}}
	if x.unique {
		o = append(o, bson.E{Key: "unique", Value: true})
	}
	if x.expires {
		o = append(o, bson.E{Key: "expireAfterSeconds", Value: 0}, bson.E{Key: "sparse", Value: true})
	}
	if x.partial != nil {
		o = append(o, bson.E{Key: "partialFilterExpression", Value: x.partial})
	}
	return fmt.Sprintf("db.getCollection(%q).createIndex(%s, %s)", x.collection, inShellForm(x.keys), inShellForm(o))
}

// ensureIndex creates an index if it is missing and the collection has at most so many documents.
// wrong says how the stored index differs, or that it is missing; "" if it is right.
func (su *Setup) ensureIndex(ctx context.Context, x index, stored []storedIndex, most int64) (wrong string, err error) {
	want := x.spec()
	if s := like(x, stored); s != nil {
		if differs := s.differs(want); differs != "" {
			return fmt.Sprintf("has a wrong index %s: %s; in mongosh: db.getCollection(%q).dropIndex(%q); ",
				s.name, differs, x.collection, s.name), nil
		}
		return "", su.awaitIndex(ctx, x, *s)
	}
	coll := su.store.DB.Collection(x.collection)
	n, err := coll.EstimatedDocumentCount(ctx)
	if err != nil {
		return "", err
	}
	if n > most {
		return fmt.Sprintf("has about %d documents and no %sindex on (%s); in mongosh: ", n, choose(x.unique, "unique ", ""), want.keys), nil
	}
	_, err = coll.Indexes().CreateOne(ctx, x.model(x.name()))
	switch {
	case isIndexConflict(err):
		return fmt.Sprintf("has a wrong index in place of %s: %v; in mongosh, once that is dropped: ", x.name(), err), nil
	case core.IsNotOffered(err):
		return "", &core.UnsupportedError{Reason: fmt.Sprintf("the server takes no index %s of %s: %v", x.name(), coll.Name(), err)}
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
func (su *Setup) awaitIndex(ctx context.Context, x index, s storedIndex) error {
	if !s.unique {
		return nil
	}
	_, err := su.store.DB.Collection(x.collection).Indexes().CreateOne(ctx, x.model(s.name))
	if core.HasCode(err, core.CodeUnauthorized) {
		return nil // another sidecar has created it, and it may be complete
	}
	return err
}

// isIndexConflict reports whether another index has the name, or the keys.
func isIndexConflict(err error) bool {
	return core.HasCode(err, core.CodeIndexOptionsConflict, core.CodeIndexKeySpecsConflict)
}

// indexSpec describes an index, except for its name.
type indexSpec struct {
	keys    string // as in the shell: topic, -ts
	unique  bool
	sparse  bool
	expires string // seconds; "" where nothing expires
	partial string // the documents that it covers; "" for all
	others  string // options that no index of the log uses
}

// spec describes the wanted index.
func (x index) spec() indexSpec {
	s := indexSpec{unique: x.unique, sparse: x.expires, expires: choose(x.expires, "0", "")}
	if x.partial != nil {
		s.partial = inShellForm(x.partial)
	}
	for _, k := range x.keys {
		s.addKey(k.Key, fmt.Sprint(k.Value))
	}
	return s
}

// inShellForm is a document as people write it in mongosh.
func inShellForm(document any) string {
	text, _ := bson.MarshalExtJSON(document, false, false)
	return string(text)
}

// addKey adds a key with its direction, or its kind.
func (s *indexSpec) addKey(field, how string) {
	switch how {
	case "1":
	case "-1":
		field = "-" + field
	default:
		field += " (" + how + ")"
	}
	if s.keys != "" {
		field = ", " + field
	}
	s.keys += field
}

// storedIndex is an index as the server lists it.
type storedIndex struct {
	name string
	indexSpec
}

// plainOptions are the options that do not affect how an index can be used.
var plainOptions = []string{"v", "key", "name", "ns", "unique", "sparse", "expireAfterSeconds", "partialFilterExpression", "background"}

func readIndex(raw bson.Raw) storedIndex {
	var s storedIndex
	s.name, _ = raw.Lookup("name").StringValueOK()
	s.unique, s.sparse = truth(raw.Lookup("unique")), truth(raw.Lookup("sparse"))
	if n, ok := raw.Lookup("expireAfterSeconds").AsInt64OK(); ok {
		s.expires = fmt.Sprint(n)
	}
	if filter, ok := raw.Lookup("partialFilterExpression").DocumentOK(); ok {
		s.partial = inShellForm(filter)
	}
	keys, _ := raw.Lookup("key").DocumentOK()
	elements, _ := keys.Elements()
	for _, k := range elements {
		how := strings.Trim(k.Value().String(), `"`)
		if n, ok := k.Value().AsInt64OK(); ok {
			how = fmt.Sprint(n)
		}
		s.addKey(k.Key(), how)
	}
	elements, _ = raw.Elements()
	for _, o := range elements {
		if !slices.Contains(plainOptions, o.Key()) {
			s.others += o.Key() + " "
		}
	}
	return s
}

// truth reads an option that may be a boolean or a number.
func truth(v bson.RawValue) bool {
	if b, ok := v.BooleanOK(); ok {
		return b
	}
	n, _ := v.AsInt64OK()
	return n != 0
}

// differs says how the index differs from the wanted one; "" if it does not differ.
func (s storedIndex) differs(want indexSpec) string {
	var list []string
	if s.keys != want.keys {
		list = append(list, "its keys are "+s.keys)
	}
	if s.unique != want.unique {
		list = append(list, choose(s.unique, "it is unique", "it is not unique"))
	}
	if s.sparse != want.sparse {
		list = append(list, choose(s.sparse, "it is sparse", "it is not sparse"))
	}
	if s.expires != want.expires {
		list = append(list, choose(s.expires != "", "it expires after "+s.expires+" s", "nothing expires by it"))
	}
	if s.partial != want.partial {
		list = append(list, choose(s.partial != "",
			"it has only documents with "+s.partial, "it has all documents, not only those with "+want.partial))
	}
	if s.others != "" {
		list = append(list, "it has "+strings.TrimSpace(s.others))
	}
	return strings.Join(list, ", ")
}

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// storedIndexes returns the indexes of a collection; none if the collection does not exist.
func (su *Setup) storedIndexes(ctx context.Context, collection string) ([]storedIndex, error) {
	cursor, err := su.store.DB.Collection(collection).Indexes().List(ctx)
	if err != nil {
		if core.HasCode(err, core.CodeNamespaceNotFound) {
			return nil, nil
		}
		return nil, fmt.Errorf("list the indexes of %s: %w", collection, err)
	}
	var raws []bson.Raw
	if err := cursor.All(ctx, &raws); err != nil {
		return nil, fmt.Errorf("list the indexes of %s: %w", collection, err)
	}
	stored := make([]storedIndex, len(raws))
	for i, raw := range raws {
		stored[i] = readIndex(raw)
	}
	return stored, nil
}
