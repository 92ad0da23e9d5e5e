package mongolog

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// failure is why an insert stored no more than it did; the zero value says that
// it stored all. At most one of duplicate and refused is set, and if none is
// and there is an err, the outcome is unknown.
type failure struct {
	err error
	// duplicate: the next event met a duplicate key; ofSeq says that it is
	// known to be the seq's.
	duplicate, ofSeq bool
	// refused: the next event's document is one that the server does not take;
	// whole says that the server does not say which event's it is.
	refused, whole bool
}

// insert inserts the documents of the events and returns how many of them, from
// the front, are stored for certain.
func (a *appending) insert(ctx context.Context, chunk []int) (stored int, f failure) {
	// Half of the time is left for another try if there is no answer.
	ctx, cancel := a.log.opts.Clock.WithTimeout(ctx, a.log.opts.Timeout/2)
	defer cancel()
	docs := make([]any, len(chunk))
	for i, at := range chunk {
		docs[i] = a.docs[at].raw
	}
	_, err := a.concern.events.InsertMany(ctx, docs)
	if err == nil {
		return len(chunk), failure{}
	}
	return judge(err)
}

// judge reads the error of an ordered insert. What is in front of a write error
// was acknowledged, unless the server says that it was not.
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
		f.duplicate, f.ofSeq = true, isOfSeq(first)
		return first.Index, f
	case isBadDocument(first):
		f.err = first
		f.refused = true
		return first.Index, f
	}
	return 0, f
}

// isOfSeq reports whether a duplicate key error is known to be the seq's. Only
// MongoDB says so. The message is no help, since ids are in it.
func isOfSeq(e mongo.WriteError) bool {
	keys, ok := e.Raw.Lookup("keyPattern").DocumentOK()
	if !ok {
		return false
	}
	_, err := keys.LookupErr(document.FieldSeq)
	return err == nil
}

// stands reports whether events that were stored above a head are where they
// belong, which is not certain when the head is out of date by now.
func (a *appending) stands(ctx context.Context, base head) (bool, error) {
	moved := !a.concern.survives && base.generation != a.log.topology.generation.Load()
	if a.log.fresh(base.since) && !moved {
		return true, nil
	}
	// Before any document is deleted there is one in heads at or above it.
	deleted, err := a.log.highestSeq(ctx, a.concern.heads, a.topic.Name, a.p)
	if err != nil || deleted > base.seq {
		return false, err
	}
	if !moved || deleted == base.seq {
		return true, nil
	}
	// The primary that had the head may have taken it with it.
	at := inPartition(a.topic.Name, a.p, bson.E{Key: "seq", Value: int64(base.seq)})
	seq, err := findSeq(ctx, a.log, a.concern.events, at, 1)
	return seq == base.seq, err
}

// undo deletes events of this call that turned out not to belong where they
// were stored, from seq first on. It is not given up with the caller's patience.
// It names each event's seq, since they are stored again: a late one must not
// meet them at their next.
func (a *appending) undo(ctx context.Context, chunk []int, first uint64) error {
	ctx, cancel := a.log.opts.Clock.WithTimeout(context.WithoutCancel(ctx), a.log.opts.Timeout)
	defer cancel()
	a.partition.head.forget()
	models := make([]mongo.WriteModel, len(chunk))
	for i, at := range chunk {
		models[i] = mongo.NewDeleteOneModel().SetFilter(append(byID(document.ID(a.topic.Name, a.batch[at].ID)),
			bson.E{Key: document.FieldSeq, Value: int64(first) + int64(i)}, bson.E{Key: document.FieldWriter, Value: a.writer}))
	}
	if err := a.log.bulkWrite(ctx, a.concern.events, models); err != nil {
		return fmt.Errorf("take back events that were stored by an outdated head: %w", err)
	}
	a.log.opts.Logger.Warn("took back events that were stored by an outdated head; they are stored again",
		"topic", a.topic.Name, "partition", a.p, "events", len(chunk))
	return nil
}
