package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Sort is an order of documents.
type Sort struct {
	// Pattern is the fields to sort by. It has none where there is no order.
	Pattern *KeyPattern
}

// ParseSort returns the order that a document says. An empty or nil one is no order: all documents are equal in it.
func ParseSort(doc bson.Raw) (*Sort, error) {
	p, err := ParseKeyPattern(doc)
	if err != nil {
		return nil, err
	}
	return &Sort{Pattern: p}, nil
}

// Key returns what a document is sorted by: the least of its keys, in the order of the sort.
func (s *Sort) Key(doc bson.Raw) ([]bson.RawValue, error) {
	keys, _, err := s.Pattern.Keys(doc)
	if err != nil {
		return nil, Errorf(BadValue, "cannot sort with keys that are parallel arrays")
	}
	return slices.MinFunc(keys, s.Pattern.Compare), nil
}

// Sort sorts documents. Those that are equal in the order stay as they were among themselves.
func (s *Sort) Sort(docs []bson.Raw) ([]bson.Raw, error) {
	if len(s.Pattern.Paths) == 0 {
		return docs, nil
	}
	type keyed struct {
		key []bson.RawValue
		doc bson.Raw
	}
	all := make([]keyed, len(docs))
	for i, doc := range docs {
		key, err := s.Key(doc)
		if err != nil {
			return nil, err
		}
		all[i] = keyed{key, doc}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return s.Pattern.Compare(a.key, b.key) })
	sorted := make([]bson.Raw, len(all))
	for i, k := range all {
		sorted[i] = k.doc
	}
	return sorted, nil
}
