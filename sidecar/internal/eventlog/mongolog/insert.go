package mongolog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// failure is why an insert stored no more than it did; the zero value says that it stored all. At
// most one of duplicate and refused is set, and if none is and there is an err, the outcome is
// unknown.
type failure struct {
	err error
	// duplicate: the next document met a duplicate key.
	duplicate bool
	key       key // of which index
	// refused: the next document is one that the server does not take; whole says that the server
	// does not say which it is.
	refused, whole bool
}

// key is the unique index of a duplicate key error.
type key int

const (
	unknownKey key = iota // only MongoDB says which
	idKey
	seqKey
)

// insert inserts documents and returns how many of them, from the front, are stored for certain.
func (b *batch) insert(ctx context.Context, chunk []*pending) (stored int, f failure) {
	// Half of the time is left for another try if there is no answer.
	ctx, cancel := b.log.opts.Clock.WithTimeout(ctx, b.log.opts.Timeout/2)
	defer cancel()
	docs := make([]any, len(chunk))
	for i, d := range chunk {
		docs[i] = d.raw
	}
	_, err := b.concern.events.InsertMany(ctx, docs)
	if err == nil {
		return len(chunk), failure{}
	}
	return judge(err)
}

// judge reads the error of an ordered insert. Documents before a write error were acknowledged,
// unless the server says that they were not.
func judge(err error) (stored int, f failure) {
	f.err = err
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) {
		f.refused = isBadDocument(err)
		f.whole = f.refused
		return 0, f
	}
	if bulk.WriteConcernError != nil || len(bulk.WriteErrors) == 0 {
		return 0, f
	}
	first := bulk.WriteErrors[0].WriteError
	switch {
	case first.Code == codeDuplicateKey:
		f.duplicate, f.key = true, keyOf(first)
		return first.Index, f
	case isBadDocument(first):
		f.err = first
		f.refused = true
		return first.Index, f
	}
	return 0, f
}

// keyOf is the index of a duplicate key error, as far as the server says. The message is no help,
// since ids are in it.
func keyOf(e mongo.WriteError) key {
	keys, ok := e.Raw.Lookup("keyPattern").DocumentOK()
	if !ok {
		return unknownKey
	}
	if _, err := keys.LookupErr(document.FieldSeq); err == nil {
		return seqKey
	}
	return idKey
}

// confirmStored returns nil once a document, and so all that were stored before it, is acknowledged
// as the topic's write concern asks for.
func (b *batch) confirmStored(ctx context.Context, d *pending) error {
	id := d.raw.Lookup(document.FieldID)
	err := b.log.majority(eventsName).FindOne(ctx, bson.D{{Key: document.FieldID, Value: id}}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return errBehind
	}
	if err != nil {
		return err
	}
	return b.confirm(ctx)
}
