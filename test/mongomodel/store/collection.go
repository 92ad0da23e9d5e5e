package store

import (
	"cmp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

// A record is a document with its number: documents are numbered in the order in which they were
// inserted.
type record struct {
	number uint64
	doc    bson.Raw
}

// A collection is one of a store's. Stores that were forked share it until one of them changes it.
type collection struct {
	owner      *owner
	ns         string
	generation int // how many collections of the name there were
	options    bson.Raw
	capped     bool
	maxBytes   int64
	maxCount   int64 // 0: no bound
	records    tree[record]
	bytes      int
	next       uint64 // the number of the next document; numbers begin with 1
	indexes    []*index
}

func newCollection(o *owner, ns string, generation int, options bson.Raw) (*collection, error) {
	c := &collection{owner: o, ns: ns, generation: generation, options: options, next: 1}
	c.records = tree[record]{
		compare:  func(a, b record) int { return cmp.Compare(a.number, b.number) },
		priority: func(r record) uint64 { return spread(r.number) },
	}
	if c.capped, _ = query.Lookup(options, "capped").BooleanOK(); c.capped {
		size, _ := query.Lookup(options, "size").AsInt64OK()
		c.maxBytes = max(4096, (size+255)/256*256)
		c.maxCount, _ = query.Lookup(options, "max").AsInt64OK()
	}
	id, err := newIndex(o, idSpec())
	c.indexes = []*index{id}
	return c, err
}

// own returns the collection for a change: itself, or a copy where it is shared.
func (c *collection) own(o *owner) *collection {
	if c.owner == o {
		return c
	}
	owned := *c
	owned.owner = o
	owned.indexes = make([]*index, len(c.indexes))
	for i, x := range c.indexes {
		copied := *x
		owned.indexes[i] = &copied
	}
	return &owned
}

// byID returns the document with an _id.
func (c *collection) byID(id bson.RawValue) (record, bool) {
	number, found := c.indexes[0].first([]bson.RawValue{id})
	if !found {
		return record{}, false
	}
	return c.records.get(record{number: number})
}

// put stores a document in place of the one with its _id, or as a new one.
func (c *collection) put(doc bson.Raw) error {
	old, found := c.byID(query.Lookup(doc, "_id"))
	r := record{number: old.number, doc: doc}
	if !found {
		r.number = c.next
	}
	for _, x := range c.indexes {
		if err := x.replace(c.owner, r.number, old.doc, doc); err != nil {
			return err
		}
	}
	c.next = max(c.next, r.number+1)
	c.bytes += len(doc) - len(old.doc)
	c.records.set(c.owner, r)
	return nil
}

func (c *collection) delete(id bson.RawValue) error {
	old, found := c.byID(id)
	if !found {
		return nil
	}
	for _, x := range c.indexes {
		if err := x.replace(c.owner, old.number, old.doc, nil); err != nil {
			return err
		}
	}
	c.bytes -= len(old.doc)
	c.records.remove(c.owner, old)
	return nil
}

// duplicate returns an error where the document has a key that another one has in a unique index,
// or cannot be indexed.
func (c *collection) duplicate(doc bson.Raw) error {
	own, _ := c.byID(query.Lookup(doc, "_id"))
	for _, x := range c.indexes {
		keys, _, err := x.keys(doc)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if x.unique && x.hasOther(key, own.number) {
				return duplicateKey(c.ns, x, key)
			}
		}
	}
	return nil
}

// surplus returns the oldest documents that a capped collection has no room for.
func (c *collection) surplus() []record {
	bytes, count := int64(c.bytes), int64(c.records.size)
	tooMuch := func() bool { return bytes > c.maxBytes || c.maxCount > 0 && count > c.maxCount }
	if !c.capped || !tooMuch() {
		return nil
	}
	var all []record
	c.records.scan(false, nil, func(r record) bool {
		if !tooMuch() {
			return false
		}
		all = append(all, r)
		bytes, count = bytes-int64(len(r.doc)), count-1
		return true
	})
	return all
}

// duplicateKey is the error of a document that has another one's key.
func duplicateKey(ns string, x *index, key []bson.RawValue) error {
	pattern := query.Lookup(x.spec, "key")
	value := bson.D{}
	parts := make([]string, len(key))
	for i, v := range key {
		value = append(value, bson.E{Key: x.pattern.Paths[i], Value: v})
		parts[i] = x.pattern.Paths[i] + ": " + query.Show(v)
	}
	err := query.Errorf(query.DuplicateKey, "E11000 duplicate key error collection: %s index: %s dup key: { %s }",
		ns, x.name, strings.Join(parts, ", "))
	err.Info = bson.D{{Key: "keyPattern", Value: pattern.Document()}, {Key: "keyValue", Value: value}}
	return err
}
