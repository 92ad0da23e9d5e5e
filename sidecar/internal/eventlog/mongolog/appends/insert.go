package appends

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
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
	ctx, cancel := b.store.Clock.WithTimeout(ctx, b.store.Timeout/2)
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
		f.refused = core.IsBadDocument(err)
		f.whole = f.refused
		return 0, f
	}
	if bulk.WriteConcernError != nil || len(bulk.WriteErrors) == 0 {
		return 0, f
	}
	first := bulk.WriteErrors[0].WriteError
	switch {
	case first.Code == core.CodeDuplicateKey:
		f.duplicate, f.seqTaken = true, isSeqTaken(first)
		return first.Index, f
	case core.IsBadDocument(first):
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
	err := b.store.Majority(core.Events).FindOne(ctx, bson.D{{Key: document.FieldID, Value: id}}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return core.ErrBehind
	}
	if err != nil {
		return err
	}
	return b.confirm(ctx)
}

// maxLookup bounds the ids that are looked up at once.
const maxLookup = 256

// resolve finds out why the document at the front of a line is a duplicate: its id is stored
// already, or its seq is taken.
func (b *batch) resolve(ctx context.Context, ln *line, seqTaken bool) error {
	if ln.pending[0].call == nil { // another sidecar has voided the seq
		if ln.lone {
			b.leave() // perhaps to end the claim
		} else {
			ln.pending = ln.pending[1:]
		}
		return nil
	}
	if seqTaken {
		return b.giveWay(ctx, ln)
	}
	decided, err := b.resolveStored(ctx, ln)
	if err == nil && !decided {
		err = core.ErrBehind
	}
	return err
}

// giveWay makes a line reserve again, since the seq at its front is taken.
func (b *batch) giveWay(ctx context.Context, ln *line) error {
	var found struct {
		Void bool `bson:"void"`
	}
	seq := int64(ln.pending[0].seq)
	err := b.store.Majority(core.Events).FindOne(ctx, events.InPartition(b.topic.Name, ln.p, events.Between(seq, seq))).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return core.ErrBehind
	case err != nil:
		return err
	case ln.lone && found.Void:
		b.leave()
		return nil
	case found.Void:
		if ln.patience, err = b.heads.MorePatience(ctx, b.topic, ln.p); err != nil {
			return err
		}
		b.most = max(1, b.most/2)
	default:
		// The head is too low: the reservation was lost with a primary. That happens at w: 1.
		if err := b.heads.RaiseGiven(ctx, b.topic, ln.p); err != nil {
			return err
		}
		if ln.lone {
			b.leave()
		}
	}
	ln.restart()
	return nil
}

// resolveStored looks up the ids of the events at the front of a line, gives the stored events
// their outcome, and reports whether the line changed. An event that is found at its own seq, after
// an event that is not found, changes nothing. Repeated publishes come in runs, so each call that
// finds one doubles the number of ids of the next call. Events that replace others (move.go)
// are not looked up: their ids are stored in any case.
func (b *batch) resolveStored(ctx context.Context, ln *line) (bool, error) {
	front := ln.pending[:min(b.lookup, len(ln.pending))]
	if i := slices.IndexFunc(front, func(d *pending) bool { return d.token != 0 }); i >= 0 {
		front = front[:i]
	}
	found, err := b.find(ctx, front)
	if err != nil || len(found) == 0 {
		return false, err
	}
	if err := b.confirm(ctx); err != nil {
		return false, err
	}
	b.met()
	decided := false
	stored := 0 // from the front, by an earlier try whose answer was lost
	for i, d := range front {
		if d.call == nil {
			continue
		}
		raw, ok := found[b.idOf(d)]
		if !ok {
			continue
		}
		var o eventlog.Outcome
		switch s, err := document.Decode(raw); {
		case err != nil:
			o = Unreadable(err)
		case s.Record.DeliverAt == 0 && s.Record.Partition == ln.p && s.Record.Seq == d.seq:
			if i == stored {
				stored++
			}
			continue
		case s.Cancelled():
			d.token, decided = int64(s.Record.Seq), true
			continue
		default:
			o = Repeated(d.record, d.raw, s)
		}
		if err := b.replace(ctx, ln, i, o); err != nil {
			return false, err
		}
		decided = true
	}
	for _, d := range front[:stored] {
		b.accept(ln, d)
	}
	b.lookup = min(2*b.lookup, maxLookup)
	if ln.lone && slices.ContainsFunc(ln.pending, func(d *pending) bool { return d.token != 0 }) {
		b.leave() // a document that is replaced may be gone, and its seq would stay empty
	}
	return decided || stored > 0, nil
}

// Unreadable is the outcome of an event whose id a broken document has.
func Unreadable(err error) eventlog.Outcome {
	return eventlog.Outcome{Err: &eventlog.RefusedError{Cause: fmt.Errorf("its id is taken by a document that cannot be read: %w", err)}}
}

// Repeated is the outcome of an event whose id is stored; raw is its own document.
func Repeated(r *eventlog.Record, raw bson.Raw, s document.Stored) eventlog.Outcome {
	_, own, _ := raw.Lookup(document.FieldHash).BinaryOK()
	same := bytes.Equal(own, s.Hash)
	if s.Record.DeliverAt != 0 {
		if !same {
			return eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID}}
		}
		return eventlog.Outcome{DeliverAt: s.Record.DeliverAt, Duplicate: true}
	}
	if s.Hash == nil && !s.Gone { // it was removed by hand
		same = codec.SameContent(&r.Event, &s.Record.Event)
	}
	if !same {
		return eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID, Seq: s.Record.Seq}}
	}
	return eventlog.Outcome{Partition: s.Record.Partition, Seq: s.Record.Seq, TS: s.Record.TS, Duplicate: true}
}
