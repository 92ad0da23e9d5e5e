package store

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

// An index has an entry for each key of each document that it covers.
type index struct {
	spec           bson.Raw
	name           string
	pattern        *query.KeyPattern
	unique, sparse bool
	partial        *query.Filter // nil: covers all documents
	expireAfter    *int64        // seconds after the date in its field
	// multikey says that a document had an array in an indexed field. Then no bounds hold for its
	// entries, and it serves no find.
	multikey bool
	entries  tree[indexEntry]
}

type indexEntry struct {
	key    []bson.RawValue
	number uint64
}

func idSpec() bson.Raw {
	return must(bson.Marshal(bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}},
		{Key: "name", Value: "_id_"}}))
}

func must(doc bson.Raw, err error) bson.Raw {
	if err != nil {
		panic(err) // a document that was made here
	}
	return doc
}

// newIndex returns an index that covers nothing yet. The specification is one that normalize
// returned.
func newIndex(o *owner, spec bson.Raw) (*index, error) {
	x := &index{spec: spec}
	var err error
	if x.pattern, err = query.ParseKeyPattern(query.Lookup(spec, "key").Document()); err != nil {
		return nil, err
	}
	x.name = query.Lookup(spec, "name").StringValue()
	x.unique, _ = query.Lookup(spec, "unique").BooleanOK()
	x.unique = x.unique || x.name == "_id_"
	x.sparse, _ = query.Lookup(spec, "sparse").BooleanOK()
	if partial, ok := query.Lookup(spec, "partialFilterExpression").DocumentOK(); ok {
		if x.partial, err = query.ParseFilter(partial); err != nil {
			return nil, err
		}
	}
	if seconds, ok := query.Lookup(spec, "expireAfterSeconds").AsInt64OK(); ok {
		x.expireAfter = &seconds
	}
	pattern := x.pattern
	x.entries = tree[indexEntry]{
		compare: func(a, b indexEntry) int {
			return cmp.Or(pattern.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
		},
		priority: func(e indexEntry) uint64 { return spread(e.number) },
	}
	return x, nil
}

// indexFields are the fields of a specification.
var indexFields = []string{"v", "key", "name", "unique", "sparse", "partialFilterExpression", "expireAfterSeconds", "background", "ns",
	"hidden"}

// normalize checks a specification as createIndexes has it, and returns it as listIndexes does.
func normalize(spec bson.Raw) (bson.Raw, error) {
	if err := query.Validate(spec); err != nil {
		return nil, err
	}
	elements, err := spec.Elements()
	if err != nil {
		return nil, err
	}
	listed := bson.D{{Key: "v", Value: int32(2)}}
	for _, e := range elements {
		switch {
		case !slices.Contains(indexFields, e.Key()):
			return nil, query.Errorf(query.InvalidIndexSpecificationOption, "The field '%s' is not valid for an index specification. "+
				"Specification: %s (or it is not known to the model)", e.Key(), spec)
		case e.Key() == "v" || e.Key() == "ns" || e.Key() == "background":
		default:
			listed = append(listed, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	keys, ok := query.Lookup(spec, "key").DocumentOK()
	if !ok {
		return nil, query.Errorf(query.FailedToParse, "The 'key' field is a required property of an index specification")
	}
	if pattern, err := query.ParseKeyPattern(keys); err != nil || len(pattern.Paths) == 0 {
		return nil, query.Errorf(query.CannotCreateIndex, "the index key pattern %s is not known to the model: %v", keys, err)
	}
	if name, ok := query.Lookup(spec, "name").StringValueOK(); !ok || name == "" || name == "*" {
		return nil, query.Errorf(query.FailedToParse, "The 'name' field is a required property of an index specification")
	}
	if seconds := query.Lookup(spec, "expireAfterSeconds"); seconds.Type != 0 {
		if n, ok := seconds.AsInt64OK(); !ok || n < 0 || n > 1<<31-1 {
			return nil, query.Errorf(query.CannotCreateIndex, "TTL index 'expireAfterSeconds' option must be numeric, at least 0 and "+
				"fit in an int, but is %s", seconds)
		}
	}
	return bson.Marshal(listed)
}

// keys returns the keys that the index has of a document: none of one that it does not cover, and
// none of nil.
func (x *index) keys(doc bson.Raw) (keys [][]bson.RawValue, multikey bool, err error) {
	if doc == nil || x.partial != nil && !x.partial.Match(doc) || x.sparse && !x.hasAny(doc) {
		return nil, false, nil
	}
	keys, multikey, err = x.pattern.Keys(doc)
	if multikey {
		slices.SortFunc(keys, x.pattern.Compare)
		keys = slices.CompactFunc(keys, func(a, b []bson.RawValue) bool { return x.pattern.Compare(a, b) == 0 })
	}
	return keys, multikey, err
}

// hasAny tells whether a document has any of the indexed fields: a sparse index leaves out
// documents without them.
func (x *index) hasAny(doc bson.Raw) bool {
	for _, path := range x.pattern.Paths {
		if query.HasPath(doc, path) {
			return true
		}
	}
	return false
}

// replace makes the index cover a document in place of another one with the same number. nil stands
// for no document.
func (x *index) replace(o *owner, number uint64, old, doc bson.Raw) error {
	before, _, err := x.keys(old)
	if err != nil {
		return err
	}
	after, multikey, err := x.keys(doc)
	if err != nil {
		return err
	}
	x.multikey = x.multikey || multikey
	for _, key := range before {
		if !slices.ContainsFunc(after, func(k []bson.RawValue) bool { return sameKey(k, key) }) {
			x.entries.remove(o, indexEntry{key, number})
		}
	}
	for _, key := range after {
		if !slices.ContainsFunc(before, func(k []bson.RawValue) bool { return sameKey(k, key) }) {
			x.entries.set(o, indexEntry{key, number})
		}
	}
	return nil
}

// sameKey tells keys apart that only compare as equal.
func sameKey(a, b []bson.RawValue) bool {
	return slices.EqualFunc(a, b, func(x, y bson.RawValue) bool { return x.Type == y.Type && bytes.Equal(x.Value, y.Value) })
}

// first returns the number of the first document that has the key.
func (x *index) first(key []bson.RawValue) (number uint64, found bool) {
	for n := range x.with(key) {
		return n, true
	}
	return 0, false
}

// hasOther tells whether a document with another number has the key.
func (x *index) hasOther(key []bson.RawValue, number uint64) bool {
	for n := range x.with(key) {
		if n != number {
			return true
		}
	}
	return false
}

// with returns the numbers of the documents that have the key.
func (x *index) with(key []bson.RawValue) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		x.entries.scan(false, func(e indexEntry) bool { return x.pattern.Compare(e.key, key) < 0 }, func(e indexEntry) bool {
			return x.pattern.Compare(e.key, key) == 0 && yield(e.number)
		})
	}
}
