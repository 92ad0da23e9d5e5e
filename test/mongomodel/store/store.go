// Package store is the data of one member of a model of a replica set: collections, their documents
// and indexes, in memory. It knows nothing of other members, of time or of goroutines: one caller
// at a time uses a Store and its forks, and its writes return idempotent entries, by which another
// Store becomes equal to it.
//
// A Store is cheap to have often. Fork returns one that shares all of its data, so that the
// committed state of a member, a transaction's view and the state to roll back to are a Store each.
// Documents are never changed, only replaced.
package store

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

// An Op is the kind of an entry.
type Op string

// The ops of entries.
const (
	Put              Op = "put"              // Doc is stored in place of the document with its _id, if there is one
	Delete           Op = "delete"           // the document with ID goes
	CreateCollection Op = "createCollection" // Doc has the options: capped, size, max
	DropCollection   Op = "dropCollection"
	RenameCollection Op = "renameCollection" // ID is the new name, with the database's
	CreateIndex      Op = "createIndex"      // Doc is the index's specification
	DropIndex        Op = "dropIndex"        // ID is the index's name
)

// An Entry is the change that one write made. Applying it again changes nothing.
type Entry struct {
	Op Op
	// NS is the collection's name with its database's, as in "db.events".
	NS  string
	ID  bson.RawValue
	Doc bson.Raw
	// Before is the document that a Put or Delete replaced or removed, and Replaced says that a Put
	// was no update by operators. They are for change streams: applying an entry does not look at
	// them.
	Before   bson.Raw
	Replaced bool
}

// Size is about how many bytes the change takes in an oplog: the document, or the fields of it that
// an update has changed.
func (e Entry) Size() int {
	size := len(e.ID.Value)
	for k, v := range query.Fields(e.Doc) {
		if e.Before == nil || e.Replaced {
			return len(e.Doc)
		}
		if old := query.Lookup(e.Before, string(k)); old.Type != v.Type || !bytes.Equal(old.Value, v.Value) {
			size += len(k) + len(v.Value) + 2
		}
	}
	return size
}

// A Store is one member's data. Its zero value is not ready: use New.
//
// Every write method applies its change and returns its entries, also beside an error: a write of
// many documents that fails in the middle keeps the changes before. A collection that is written to
// and is not there is created, with an entry of its own.
type Store struct {
	// Guard, if set, is called before a write's entry is applied; its error ends the write. It is
	// for locks and conflicts of transactions. Apply and Fork do not know it.
	Guard func(Entry) error
	// Work, if set, counts the examined keys and documents, also of the forks.
	Work *Work

	owner       *owner
	collections map[string]*collection
	shared      bool // the map is another store's too
	created     int  // how many collections were
}

// New returns an empty store.
func New() *Store { return &Store{owner: &owner{}, collections: map[string]*collection{}} }

// Fork returns a store with the same data. Writes to either are not seen in the other. It takes
// constant time.
func (s *Store) Fork() *Store {
	s.owner, s.shared = &owner{}, true
	return &Store{Work: s.Work, owner: &owner{}, collections: s.collections, shared: true, created: s.created}
}

// set gives a name to a collection; nil removes the name.
func (s *Store) set(ns string, c *collection) {
	if s.shared {
		s.collections, s.shared = maps.Clone(s.collections), false
	}
	if c == nil {
		delete(s.collections, ns)
		return
	}
	s.collections[ns] = c
}

// change returns a collection that may be changed.
func (s *Store) change(ns string) (*collection, error) {
	c := s.collections[ns]
	if c == nil {
		return nil, notFound(ns)
	}
	if owned := c.own(s.owner); owned != c {
		s.set(ns, owned)
		return owned, nil
	}
	return c, nil
}

func notFound(ns string) error { return query.Errorf(query.NamespaceNotFound, "ns not found %s", ns) }

// Apply applies an entry, as a member does with another one's writes. It does not check unique
// indexes.
func (s *Store) Apply(e Entry) error {
	_, there := s.collections[e.NS]
	switch e.Op {
	case CreateCollection:
		if there {
			return nil
		}
		s.created++
		c, err := newCollection(s.owner, e.NS, s.created, e.Doc)
		s.set(e.NS, c)
		return err
	case DropCollection:
		if there {
			s.set(e.NS, nil)
		}
		return nil
	case RenameCollection:
		if there {
			return s.rename(e.NS, e.ID.StringValue())
		}
		return nil
	}
	c, err := s.change(e.NS)
	if err != nil {
		return err
	}
	switch e.Op {
	case Put:
		return c.put(e.Doc)
	case Delete:
		return c.delete(e.ID)
	case CreateIndex:
		return c.createIndex(e.Doc)
	case DropIndex:
		c.indexes = slices.DeleteFunc(c.indexes, func(x *index) bool { return x.name == e.ID.StringValue() })
		return nil
	}
	return fmt.Errorf("the op %q is not known to the model", e.Op)
}

// rename gives a collection another name. It counts as another collection than both names had
// before.
func (s *Store) rename(from, to string) error {
	c, err := s.change(from)
	if err != nil {
		return err
	}
	s.created++
	c.ns, c.generation = to, s.created
	s.set(from, nil)
	s.set(to, c)
	return nil
}

// Claims returns the claims of a write of the entry, as strings: the document, and every key in a
// unique index that it adds or removes. Two transactions whose entries have a claim in common
// conflict.
func (s *Store) Claims(e Entry) []string {
	c := s.collections[e.NS]
	if c == nil || e.Op != Put && e.Op != Delete {
		return []string{e.NS}
	}
	own := func(x *index, key []bson.RawValue) string {
		claim := append(append([]byte(e.NS), 0), x.name...)
		for _, v := range key {
			claim = query.AppendKey(append(claim, 0), v)
		}
		return string(claim)
	}
	claims := []string{own(c.indexes[0], []bson.RawValue{e.ID})}
	old, _ := c.byID(e.ID)
	for _, x := range c.indexes[1:] {
		if !x.unique {
			continue
		}
		before, _, _ := x.keys(old.doc)
		after, _, _ := x.keys(e.Doc)
		for _, key := range slices.Concat(before, after) {
			has := func(keys [][]bson.RawValue) bool {
				return slices.ContainsFunc(keys, func(k []bson.RawValue) bool { return x.pattern.Compare(k, key) == 0 })
			}
			if !has(before) || !has(after) {
				claims = append(claims, own(x, key))
			}
		}
	}
	return claims
}

// Count returns how many documents the collection has, and the size of all of them in bytes.
func (s *Store) Count(ns string) (documents, bytes int) {
	if c := s.collections[ns]; c != nil {
		return c.records.size, c.bytes
	}
	return 0, 0
}

// A CollectionInfo describes a collection to listCollections.
type CollectionInfo struct {
	Name    string // without the database's
	Options bson.Raw
}

// Collections returns a database's collections in order of their names.
func (s *Store) Collections(db string) []CollectionInfo {
	var all []CollectionInfo
	for _, ns := range slices.Sorted(maps.Keys(s.collections)) {
		if name, ok := strings.CutPrefix(ns, db+"."); ok {
			all = append(all, CollectionInfo{name, s.collections[ns].options})
		}
	}
	return all
}

// Databases returns the names of the databases that have collections, in order.
func (s *Store) Databases() []string {
	var all []string
	for ns := range s.collections {
		db, _, _ := strings.Cut(ns, ".")
		all = append(all, db)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
