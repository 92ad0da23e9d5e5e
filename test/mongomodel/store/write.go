package store

import (
	"bytes"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

// maxDocumentBytes is how large a document may be, as on the server.
const maxDocumentBytes = 16 << 20

// A writing is one write under way.
type writing struct {
	store   *Store
	entries []Entry
}

// do applies an entry, if the guard lets it.
func (w *writing) do(e Entry) error {
	if w.store.Guard != nil {
		if err := w.store.Guard(e); err != nil {
			return err
		}
	}
	if err := w.store.Apply(e); err != nil {
		return err
	}
	w.entries = append(w.entries, e)
	return nil
}

// collection returns the collection, which it creates where it is not there.
func (w *writing) collection(ns string) (*collection, error) {
	if w.store.collections[ns] == nil {
		if err := w.create(ns, must(bson.Marshal(bson.D{}))); err != nil {
			return nil, err
		}
	}
	return w.store.collections[ns], nil
}

func (w *writing) create(ns string, options bson.Raw) error {
	if _, name, _ := strings.Cut(ns, "."); name == "" || strings.Contains(ns, "$") {
		return query.Errorf(query.InvalidNamespace, "Invalid namespace specified '%s'", ns)
	}
	return w.do(Entry{Op: CreateCollection, NS: ns, Doc: options})
}

// put stores a document, unless a unique index forbids it. before is the one that it takes the
// place of, if any.
func (w *writing) put(ns string, doc, before bson.Raw, replaced bool) error {
	c, err := w.collection(ns)
	if err != nil {
		return err
	}
	if err := c.duplicate(doc); err != nil {
		return err
	}
	if err := w.do(Entry{Op: Put, NS: ns, ID: query.Lookup(doc, "_id"), Doc: doc, Before: before, Replaced: replaced}); err != nil {
		return err
	}
	for _, r := range w.store.collections[ns].surplus() {
		if err := w.do(Entry{Op: Delete, NS: ns, ID: query.Lookup(r.doc, "_id"), Before: r.doc}); err != nil {
			return err
		}
	}
	return nil
}

// insert stores a document that is not there yet.
func (w *writing) insert(ns string, doc bson.Raw) error {
	id := query.Lookup(doc, "_id")
	switch id.Type {
	case 0:
		return query.Errorf(query.BadValue, "a document without an _id is not known to the model: drivers make one")
	case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
		return query.Errorf(53, "The '_id' value cannot be of type %s", query.TypeName(id))
	}
	if len(doc) > maxDocumentBytes {
		return query.Errorf(query.BSONObjectTooLarge, "object to insert too large. size in bytes: %d, max size: %d", len(doc), maxDocumentBytes)
	}
	c, err := w.collection(ns)
	if err != nil {
		return err
	}
	if _, found := c.byID(id); found {
		return duplicateKey(ns, c.indexes[0], []bson.RawValue{id})
	}
	return w.put(ns, query.IDFirst(doc), nil, false)
}

// Insert stores a document, which has an _id.
func (s *Store) Insert(ns string, doc bson.Raw) ([]Entry, error) {
	if err := query.Validate(doc); err != nil {
		return nil, err
	}
	w := &writing{store: s}
	err := w.insert(ns, doc)
	return w.entries, err
}

// An UpdateRequest is one statement of an update command, or a findAndModify.
type UpdateRequest struct {
	Filter *query.Filter
	Update *query.Update
	// Sort says which of the documents is updated where Multi is not set. It may be nil.
	Sort          *query.KeyPattern
	Hint          bson.RawValue
	Upsert, Multi bool
	// NewID makes the _id of an upserted document that gets none from filter or update.
	NewID func() bson.RawValue
}

// An UpdateResult is the result of an update. Before and After are the last updated document's;
// Before is nil where one was upserted.
type UpdateResult struct {
	Matched, Modified int
	UpsertedID        bson.RawValue // its zero value: nothing was upserted
	Before, After     bson.Raw
	Entries           []Entry
}

// Update updates the documents that the request selects, or inserts one.
func (s *Store) Update(ns string, r UpdateRequest) (UpdateResult, error) {
	w := &writing{store: s}
	result, err := w.update(ns, r)
	result.Entries = w.entries
	return result, err
}

func (w *writing) update(ns string, r UpdateRequest) (UpdateResult, error) {
	var result UpdateResult
	if r.Multi && r.Update.Replacement() {
		return result, query.Errorf(query.FailedToParse, "multi update is not supported for replacement-style update")
	}
	docs, err := w.store.selected(ns, FindRequest{Filter: r.Filter, Sort: r.Sort, Hint: r.Hint}, r.Multi)
	if err != nil {
		return result, err
	}
	if len(docs) == 0 && r.Upsert {
		return w.upsert(ns, r)
	}
	for _, doc := range docs {
		after, err := r.Update.Apply(doc, false)
		if err != nil {
			return result, err
		}
		if len(after) > maxDocumentBytes {
			return result, query.Errorf(17419, "Resulting document after update is larger than %d", maxDocumentBytes)
		}
		if !bytes.Equal(doc, after) {
			if err := w.put(ns, after, doc, r.Update.Replacement()); err != nil {
				return result, err
			}
			result.Modified++
		}
		result.Matched++
		result.Before, result.After = doc, after
	}
	return result, nil
}

func (w *writing) upsert(ns string, r UpdateRequest) (UpdateResult, error) {
	seed, err := r.Filter.UpsertSeed()
	if err != nil {
		return UpdateResult{}, err
	}
	doc, err := r.Update.Apply(seed, true)
	if err != nil {
		return UpdateResult{}, err
	}
	if query.Lookup(doc, "_id").Type == 0 {
		doc = query.WithID(doc, r.NewID())
	}
	doc = query.IDFirst(doc)
	if err := w.insert(ns, doc); err != nil {
		return UpdateResult{}, err
	}
	return UpdateResult{UpsertedID: query.Lookup(doc, "_id"), After: doc}, nil
}

// selected returns the documents that a write is about: all that match, or the first of them.
func (s *Store) selected(ns string, r FindRequest, all bool) ([]bson.Raw, error) {
	if !all {
		r.Limit = 1
	}
	return s.All(ns, r)
}

// A DeleteRequest is one statement of a delete command.
type DeleteRequest struct {
	Filter *query.Filter
	Hint   bson.RawValue
	Multi  bool
}

// A DeleteResult is the result of a delete.
type DeleteResult struct {
	Deleted int
	Entries []Entry
}

// Delete removes the documents that the request selects.
func (s *Store) Delete(ns string, r DeleteRequest) (DeleteResult, error) {
	var result DeleteResult
	docs, err := s.selected(ns, FindRequest{Filter: r.Filter, Hint: r.Hint}, r.Multi)
	if err != nil {
		return result, err
	}
	w := &writing{store: s}
	for _, doc := range docs {
		if err = w.do(Entry{Op: Delete, NS: ns, ID: query.Lookup(doc, "_id"), Before: doc}); err != nil {
			break
		}
		result.Deleted++
	}
	result.Entries = w.entries
	return result, err
}

// Expired returns the deletions of a TTL pass: of the documents whose time in a TTL index is over
// at now.
func (s *Store) Expired(now time.Time) []Entry {
	var due []Entry
	for _, ns := range s.names() {
		c := s.collections[ns]
		seen := map[uint64]bool{}
		for _, x := range c.indexes {
			if x.expireAfter == nil || len(x.pattern.Paths) != 1 {
				continue
			}
			for _, number := range x.dated(now.Add(-time.Duration(*x.expireAfter) * time.Second)) {
				if r, found := c.records.get(record{number: number}); found && !seen[number] {
					seen[number] = true
					due = append(due, Entry{Op: Delete, NS: ns, ID: query.Lookup(r.doc, "_id"), Before: r.doc})
				}
			}
		}
	}
	return due
}
