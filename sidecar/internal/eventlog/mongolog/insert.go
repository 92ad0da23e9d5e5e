package mongolog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// failure says why an insert did not store all documents; the zero value says that it stored all.
// At most one of duplicate and refused is set. If none is set and err is not nil, the outcome is
// unknown.
type failure struct {
	err error
	// duplicate: the next document has a duplicate key.
	duplicate bool
	seqTaken  bool // the key is the seq, else the id
	// refused: the server does not accept the next document. whole: the server does not say which
	// document it refused.
	refused, whole bool
}

// insert inserts documents and returns how many of them, from the front, are certainly stored.
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
		f.duplicate, f.seqTaken = true, isSeqTaken(first)
		return first.Index, f
	case isBadDocument(first):
		f.err = first
		f.refused = true
		return first.Index, f
	}
	return 0, f
}

// isSeqTaken reports whether a duplicate key error is about the index of seqs, and not the one of
// ids. The message does not help, since it contains ids.
func isSeqTaken(e mongo.WriteError) bool {
	_, err := e.Raw.LookupErr("keyPattern", document.FieldSeq)
	return err == nil
}

// confirmStored returns nil once the document, and so every document stored before it, is
// acknowledged according to the topic's write concern.
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
