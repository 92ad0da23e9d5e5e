package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Empty says that the pattern, which may be nil, has no fields. As a sort it is no order: all
// documents are equal in it.
func (p *KeyPattern) Empty() bool { return p == nil || len(p.Paths) == 0 }

// SortKey returns the key by which a document is sorted: the least of its keys, in the order of the
// pattern.
func (p *KeyPattern) SortKey(doc bson.Raw) ([]bson.RawValue, error) {
	keys, _, err := p.Keys(doc)
	if err != nil {
		return nil, Errorf(BadValue, "cannot sort with keys that are parallel arrays")
	}
	return slices.MinFunc(keys, p.Compare), nil
}

// Sort sorts documents. Documents that are equal in the order stay as they were among themselves.
func (p *KeyPattern) Sort(docs []bson.Raw) ([]bson.Raw, error) {
	if p.Empty() {
		return docs, nil
	}
	type keyed struct {
		key []bson.RawValue
		doc bson.Raw
	}
	all := make([]keyed, len(docs))
	for i, doc := range docs {
		key, err := p.SortKey(doc)
		if err != nil {
			return nil, err
		}
		all[i] = keyed{key, doc}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return p.Compare(a.key, b.key) })
	sorted := make([]bson.Raw, len(all))
	for i, k := range all {
		sorted[i] = k.doc
	}
	return sorted, nil
}
