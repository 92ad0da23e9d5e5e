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
)

// indexSpec is what an index is, but for its name.
type indexSpec struct {
	keys    string // as people write them: topic, -ts
	unique  bool
	sparse  bool
	expires string // seconds; "" where nothing expires
	others  string // options that no index of the log has
}

// specOf is what an index should be.
func specOf(m mongo.IndexModel) indexSpec {
	var o options.IndexOptions
	for _, set := range m.Options.List() {
		_ = set(&o)
	}
	s := indexSpec{unique: o.Unique != nil && *o.Unique, sparse: o.Sparse != nil && *o.Sparse}
	if o.ExpireAfterSeconds != nil {
		s.expires = fmt.Sprint(*o.ExpireAfterSeconds)
	}
	keys, _ := m.Keys.(bson.D)
	for _, k := range keys {
		s.addKey(k.Key, fmt.Sprint(k.Value))
	}
	return s
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

// plainOptions are those that say nothing about what an index does for us.
var plainOptions = []string{"v", "key", "name", "ns", "unique", "sparse", "expireAfterSeconds", "background"}

func readIndex(raw bson.Raw) storedIndex {
	var s storedIndex
	s.name, _ = raw.Lookup("name").StringValueOK()
	s.unique, s.sparse = truth(raw.Lookup("unique")), truth(raw.Lookup("sparse"))
	if n, ok := raw.Lookup("expireAfterSeconds").AsInt64OK(); ok {
		s.expires = fmt.Sprint(n)
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
	all, _ := raw.Elements()
	for _, o := range all {
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

// differs says what the index has other than it should, "" if nothing.
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

// rebuildSuffix is behind the name of the index that does an index's work
// while that one is rebuilt.
const rebuildSuffix = "_rebuild"

// standIn is an index with all directions turned round. It keeps the same
// things unique and serves the same queries, but for the server it is another
// index, so that both can be there at the same time, which two that differ in
// their names alone cannot.
func (x index) standIn() index {
	var keys bson.D
	for _, k := range x.model.Keys.(bson.D) {
		keys = append(keys, bson.E{Key: k.Key, Value: -1})
	}
	o := options.Index().SetName(x.name + rebuildSuffix)
	if specOf(x.model).unique {
		o.SetUnique(true)
	}
	return index{x.collection, x.name + rebuildSuffix, mongo.IndexModel{Keys: keys, Options: o}}
}

// reindex makes the indexes what the log needs.
func (m *migration) reindex(ctx context.Context) error {
	wanted := m.log.indexes(m.engine)
	var collections []string
	for _, x := range wanted {
		if !slices.Contains(collections, x.collection) {
			collections = append(collections, x.collection)
		}
	}
	m.options.Progress(StepIndexes, 0, int64(len(wanted)))
	done := int64(0)
	for _, name := range collections {
		stored, err := m.storedIndexes(ctx, name)
		if err != nil {
			return err
		}
		ours := []string{"_id_"}
		for _, x := range wanted {
			if x.collection != name {
				continue
			}
			ours = append(ours, x.name, x.name+rebuildSuffix)
			if err := m.index(ctx, x, stored); err != nil {
				return fmt.Errorf("index %s of %s: %w", x.name, name, err)
			}
			done++
			m.options.Progress(StepIndexes, done, int64(len(wanted)))
		}
		for _, s := range stored {
			if !slices.Contains(ours, s.name) {
				m.foreign(name, s)
			}
		}
	}
	return nil
}

func (m *migration) indexView(collection string) mongo.IndexView {
	return m.log.db.Collection(m.log.opts.Prefix + collection).Indexes()
}

func (m *migration) storedIndexes(ctx context.Context, collection string) ([]storedIndex, error) {
	cursor, err := m.indexView(collection).List(ctx)
	if err != nil {
		if isNamespaceMissing(err) {
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

// index makes one index what it should be.
func (m *migration) index(ctx context.Context, x index, stored []storedIndex) error {
	want := specOf(x.model)
	report := IndexReport{Collection: m.log.opts.Prefix + x.collection, Name: x.name, Keys: want.keys, Action: IndexKept}
	named := func(name string) int {
		return slices.IndexFunc(stored, func(s storedIndex) bool { return s.name == name })
	}
	same := slices.IndexFunc(stored, func(s storedIndex) bool { return s.differs(want) == "" })
	steps := m.create
	switch at := named(x.name); {
	case at >= 0 && stored[at].differs(want) == "":
		steps = nil
	case at >= 0:
		report.Action, report.Detail = IndexRebuilt, stored[at].differs(want)
		steps = m.rebuild
	case same >= 0:
		// The server takes no second one that differs in its name alone.
		report.Detail = "there by the name " + stored[same].name
		steps = nil
	default:
		report.Action = IndexCreated
	}
	m.report.Indexes = append(m.report.Indexes, report)
	if steps != nil && !m.options.DryRun {
		if err := steps(ctx, x); err != nil {
			m.report.FailedIndex = report.fullName()
			return err
		}
	}
	if report.Action == IndexRebuilt || named(x.name+rebuildSuffix) < 0 {
		return nil
	}
	// An earlier migration has not come to its end.
	left := stored[named(x.name+rebuildSuffix)]
	m.report.Indexes = append(m.report.Indexes, IndexReport{
		Collection: report.Collection, Name: left.name, Keys: left.keys, Action: IndexDropped, Detail: "left by an interrupted migration"})
	if m.options.DryRun {
		return nil
	}
	return m.drop(ctx, x.collection, left.name)
}

func (m *migration) create(ctx context.Context, x index) error {
	_, err := m.indexView(x.collection).CreateOne(ctx, x.model)
	if want := specOf(x.model); want.unique && isDuplicates(err) {
		return fmt.Errorf("it has to be unique, so no two documents may have the same %s: %w", want.keys, err)
	}
	return err
}

// isDuplicates reports whether an index cannot be unique. FerretDB passes on
// what its database says, without a code.
func isDuplicates(err error) bool {
	return mongo.IsDuplicateKeyError(err) || err != nil && strings.Contains(err.Error(), "UNIQUE constraint failed")
}

// rebuild replaces an index. Appenders rely on the unique one at any moment,
// and readers would wait long without theirs; so another one does its work
// meanwhile. Nobody reads by a TTL index.
func (m *migration) rebuild(ctx context.Context, x index) error {
	if specOf(x.model).expires != "" {
		if err := m.drop(ctx, x.collection, x.name); err != nil {
			return err
		}
		return m.create(ctx, x)
	}
	standIn := x.standIn()
	if err := m.create(ctx, standIn); err != nil {
		return err
	}
	if err := m.drop(ctx, x.collection, x.name); err != nil {
		return err
	}
	if err := m.create(ctx, x); err != nil {
		return err
	}
	return m.drop(ctx, x.collection, standIn.name)
}

// drop removes an index; that it is gone already is fine.
func (m *migration) drop(ctx context.Context, collection, name string) error {
	err := m.indexView(collection).DropOne(ctx, name)
	if isIndexMissing(err) {
		return nil
	}
	return err
}

// foreign mentions an index that is not the log's.
func (m *migration) foreign(collection string, s storedIndex) {
	r := IndexReport{Collection: m.log.opts.Prefix + collection, Name: s.name, Keys: s.keys, Action: IndexForeign}
	switch {
	case s.expires != "":
		r.Detail = "it makes the server remove documents"
	case s.unique:
		r.Detail = "it is unique, so the server may refuse what the log inserts"
	}
	m.report.Indexes = append(m.report.Indexes, r)
}

// MongoDB's error codes for what is not there.
const (
	codeNamespaceNotFound = 26
	codeIndexNotFound     = 27
)

func isNamespaceMissing(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(codeNamespaceNotFound)
}

func isIndexMissing(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(codeIndexNotFound)
}
