package store

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

func (s *Store) names() []string { return slices.Sorted(maps.Keys(s.collections)) }

// Create creates a collection with the options of a create command.
func (s *Store) Create(ns string, options bson.Raw) ([]Entry, error) {
	if options == nil {
		options = must(bson.Marshal(bson.D{}))
	}
	if err := checkOptions(options); err != nil {
		return nil, err
	}
	if s.collections[ns] != nil {
		return nil, query.Errorf(query.NamespaceExists, "Collection already exists. NS: %s", ns)
	}
	w := &writing{store: s}
	err := w.create(ns, options)
	return w.entries, err
}

func checkOptions(options bson.Raw) error {
	elements, err := options.Elements()
	if err != nil {
		return query.Errorf(query.FailedToParse, "the options of a collection: %v", err)
	}
	for _, e := range elements {
		v := e.Value()
		n, isNumber := v.AsInt64OK()
		switch e.Key() {
		case "capped":
			if _, ok := v.BooleanOK(); !ok {
				return query.Errorf(query.TypeMismatch, "capped is a boolean, not %s", v)
			}
		case "size", "max":
			if !isNumber || n < 0 {
				return query.Errorf(query.BadValue, "%s is a number of at least 0, not %s", e.Key(), v)
			}
		default:
			return query.Errorf(query.InvalidOptions, "the option %s of a collection is not known to the model", e.Key())
		}
	}
	if capped, _ := query.Lookup(options, "capped").BooleanOK(); capped && query.Lookup(options, "size").Type == 0 {
		return query.Errorf(query.InvalidOptions, "the 'size' field is required when 'capped' is true")
	}
	return nil
}

// Drop removes a collection. One that is not there is an error with code 26.
func (s *Store) Drop(ns string) ([]Entry, error) {
	if s.collections[ns] == nil {
		return nil, notFound(ns)
	}
	w := &writing{store: s}
	err := w.do(Entry{Op: DropCollection, NS: ns})
	return w.entries, err
}

// Rename gives a collection another name. A collection that has the name is an error with code 48,
// unless it is to be dropped; one that is not there is an error with code 26.
func (s *Store) Rename(from, to string, dropTarget bool) ([]Entry, error) {
	if s.collections[from] == nil {
		return nil, query.Errorf(query.NamespaceNotFound, "Source collection %s does not exist", from)
	}
	if _, name, _ := strings.Cut(to, "."); name == "" || strings.Contains(to, "$") {
		return nil, query.Errorf(query.InvalidNamespace, "Invalid target namespace: %s", to)
	}
	if from == to {
		return nil, query.Errorf(query.IllegalOperation, "Can't rename a collection to itself")
	}
	w := &writing{store: s}
	if s.collections[to] != nil {
		if !dropTarget {
			return nil, query.Errorf(query.NamespaceExists, "target namespace exists")
		}
		if err := w.do(Entry{Op: DropCollection, NS: to}); err != nil {
			return w.entries, err
		}
	}
	err := w.do(Entry{Op: RenameCollection, NS: from, ID: query.Lookup(must(bson.Marshal(bson.D{{Key: "to", Value: to}})), "to")})
	return w.entries, err
}

// DropDatabase removes all collections of a database.
func (s *Store) DropDatabase(db string) ([]Entry, error) {
	w := &writing{store: s}
	for _, c := range s.Collections(db) {
		if err := w.do(Entry{Op: DropCollection, NS: db + "." + c.Name}); err != nil {
			return w.entries, err
		}
	}
	return w.entries, nil
}

// CreateIndexes creates the indexes that are not there yet, and returns how many there were before
// and after.
func (s *Store) CreateIndexes(ns string, specs []bson.Raw) (entries []Entry, before, after int, err error) {
	w := &writing{store: s}
	c, err := w.collection(ns)
	if err != nil {
		return nil, 0, 0, err
	}
	before = len(c.indexes)
	for _, spec := range specs {
		if spec, err = normalize(spec); err != nil {
			break
		}
		var there bool
		if there, err = s.collections[ns].hasIndex(spec); err != nil {
			break
		}
		if there {
			continue
		}
		if err = s.collections[ns].canBuild(spec); err != nil {
			break
		}
		if err = w.do(Entry{Op: CreateIndex, NS: ns, Doc: spec}); err != nil {
			break
		}
	}
	return w.entries, before, len(s.collections[ns].indexes), err
}

// hasIndex tells whether the collection has the index that a specification says. One that is like
// it, but not the same, is an error.
func (c *collection) hasIndex(spec bson.Raw) (bool, error) {
	name := query.Lookup(spec, "name").StringValue()
	for _, x := range c.indexes {
		sameKeys := query.Compare(query.Lookup(x.spec, "key"), query.Lookup(spec, "key")) == 0
		if sameKeys && x.name == "_id_" {
			return true, nil
		}
		sameOptions := true
		for _, option := range []string{"unique", "sparse", "partialFilterExpression", "expireAfterSeconds"} {
			a, b := query.Lookup(x.spec, option), query.Lookup(spec, option)
			if a.Type == 0 || b.Type == 0 {
				sameOptions = sameOptions && !isSet(a) && !isSet(b)
			} else {
				sameOptions = sameOptions && query.Compare(a, b) == 0
			}
		}
		switch {
		case x.name == name && sameKeys && sameOptions:
			return true, nil
		case x.name == name && sameKeys:
			return false, query.Errorf(query.IndexOptionsConflict, "An equivalent index already exists with the same name but different "+
				"options. Requested index: %s, existing index: %s", query.ShowDocument(spec), query.ShowDocument(x.spec))
		case x.name == name:
			return false, query.Errorf(query.IndexKeySpecsConflict, "An existing index has the same name as the requested index. When index "+
				"names are not specified, they are auto generated and can cause conflicts. Please refer to our documentation. Requested "+
				"index: %s, existing index: %s", query.ShowDocument(spec), query.ShowDocument(x.spec))
		case sameKeys && sameOptions:
			return false, query.Errorf(query.IndexOptionsConflict, "Index already exists with a different name: %s", x.name)
		case sameKeys:
			return false, query.Errorf(query.IndexOptionsConflict, "An equivalent index already exists with a different name and options. "+
				"Requested index: %s, existing index: %s", query.ShowDocument(spec), query.ShowDocument(x.spec))
		}
	}
	return false, nil
}

// isSet tells whether an option says anything: false is as good as none.
func isSet(v bson.RawValue) bool {
	b, isBool := v.BooleanOK()
	return v.Type != 0 && (!isBool || b)
}

// canBuild returns an error where the collection's documents do not allow an index.
func (c *collection) canBuild(spec bson.Raw) error {
	x, err := c.built(spec)
	if err != nil || !x.unique {
		return err
	}
	var last *indexEntry
	x.entries.scan(false, nil, func(e indexEntry) bool {
		if last != nil && x.pattern.Compare(last.key, e.key) == 0 && last.number != e.number {
			err = duplicateKey(c.ns, x, e.key)
		}
		last = &e
		return err == nil
	})
	return err
}

// built returns an index of all documents.
func (c *collection) built(spec bson.Raw) (*index, error) {
	x, err := newIndex(c.owner, spec)
	if err != nil {
		return nil, err
	}
	c.records.scan(false, nil, func(r record) bool {
		err = x.replace(c.owner, r.number, nil, r.doc)
		return err == nil
	})
	return x, err
}

func (c *collection) createIndex(spec bson.Raw) error {
	name := query.Lookup(spec, "name").StringValue()
	if slices.ContainsFunc(c.indexes, func(x *index) bool { return x.name == name }) {
		return nil
	}
	x, err := c.built(spec)
	if err != nil {
		return err
	}
	c.indexes = append(c.indexes, x)
	return nil
}

// DropIndexes removes the index that a string or a key pattern names, the indexes that an array of
// strings names, or with "*" all except the one on _id. It returns how many there were.
func (s *Store) DropIndexes(ns string, which bson.RawValue) (entries []Entry, before int, err error) {
	c := s.collections[ns]
	if c == nil {
		return nil, 0, notFound(ns)
	}
	before = len(c.indexes)
	names, err := c.namedIndexes(which)
	if err != nil {
		return nil, before, err
	}
	w := &writing{store: s}
	for _, name := range names {
		if err := w.do(Entry{Op: DropIndex, NS: ns, ID: name}); err != nil {
			return w.entries, before, err
		}
	}
	return w.entries, before, nil
}

func (c *collection) namedIndexes(which bson.RawValue) ([]bson.RawValue, error) {
	wanted := []bson.RawValue{which}
	if array, ok := which.ArrayOK(); ok {
		var err error
		if wanted, err = array.Values(); err != nil {
			return nil, err
		}
	}
	all, _ := which.StringValueOK()
	var names []bson.RawValue
	if all == "*" {
		for _, x := range c.indexes[1:] {
			names = append(names, query.Lookup(x.spec, "name"))
		}
		return names, nil
	}
	for _, w := range wanted {
		x := c.index(w)
		switch {
		case x == nil:
			return nil, query.Errorf(query.IndexNotFound, "index not found with name [%s]", strings.Trim(query.Show(w), `"`))
		case x.name == "_id_":
			return nil, query.Errorf(query.InvalidOptions, "cannot drop _id index")
		}
		names = append(names, query.Lookup(x.spec, "name"))
	}
	return names, nil
}

// index returns the index with the name or the key pattern, or nil.
func (c *collection) index(which bson.RawValue) *index {
	for _, x := range c.indexes {
		if query.Compare(query.Lookup(x.spec, "name"), which) == 0 || query.Compare(query.Lookup(x.spec, "key"), which) == 0 {
			return x
		}
	}
	return nil
}

// Indexes returns the specifications of a collection's indexes, the one on _id first. A collection
// that is not there is an error with code 26.
func (s *Store) Indexes(ns string) ([]bson.Raw, error) {
	c := s.collections[ns]
	if c == nil {
		return nil, notFound(ns)
	}
	var all []bson.Raw
	for _, x := range c.indexes {
		all = append(all, x.spec)
	}
	return all, nil
}

// dated returns the numbers of the documents whose date is at or before a time.
func (x *index) dated(until time.Time) []uint64 {
	var all []uint64
	limit := until.UnixMilli()
	x.entries.scan(x.pattern.Directions[0] < 0, func(e indexEntry) bool { return query.Compare(e.key[0], minDate) < 0 },
		func(e indexEntry) bool {
			date, ok := e.key[0].DateTimeOK()
			if !ok || date > limit {
				return false
			}
			all = append(all, e.number)
			return true
		})
	return all
}

var minDate = query.Lookup(must(bson.Marshal(bson.D{{Key: "d", Value: bson.DateTime(-1 << 63)}})), "d")
