package mongolog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

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
		s.partial = only(x.partial)
	}
	for _, k := range x.keys {
		s.addKey(k.Key, fmt.Sprint(k.Value))
	}
	return s
}

// only is the filter of a partial index, in the shell's form.
func only(filter any) string {
	text, _ := bson.MarshalExtJSON(filter, false, false)
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
		s.partial = only(filter)
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
		list = append(list, choose(s.partial != "", "it has only documents with "+s.partial, "it has all documents, not only those with "+want.partial))
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
func (l *Log) storedIndexes(ctx context.Context, collection string) ([]storedIndex, error) {
	cursor, err := l.db.Collection(l.opts.Prefix + collection).Indexes().List(ctx)
	if err != nil {
		if hasCode(err, codeNamespaceNotFound) {
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
