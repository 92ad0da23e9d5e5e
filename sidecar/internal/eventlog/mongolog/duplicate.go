package mongolog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// resolve finds out why the document at the front of a line is a duplicate: its id is stored
// already, or its seq is taken.
func (b *batch) resolve(ctx context.Context, at *line, seqTaken bool) error {
	if at.pending[0].call == nil {
		at.pending = at.pending[1:] // another sidecar has voided the seq
		return nil
	}
	if seqTaken {
		return b.giveWay(ctx, at)
	}
	decided, err := b.resolveStored(ctx, at)
	if err == nil && !decided {
		err = errBehind
	}
	return err
}

// giveWay makes a line reserve again, since the seq at its front is taken.
func (b *batch) giveWay(ctx context.Context, at *line) error {
	var found struct {
		Void bool `bson:"void"`
	}
	seq := int64(at.pending[0].seq)
	err := b.log.majority(eventsName).FindOne(ctx, inPartition(b.topic.Name, at.p, between(seq, seq))).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return errBehind
	case err != nil:
		return err
	case found.Void:
		if at.patience, err = b.log.morePatience(ctx, b.topic, at.p); err != nil {
			return err
		}
		b.most = max(1, b.most/2)
	default:
		// The head is too low: the reservation was lost with a primary. That happens at w: 1.
		if err := b.log.raiseHead(ctx, b.topic, at.p); err != nil {
			return err
		}
	}
	at.restart()
	return nil
}

// resolveStored looks up the ids of the events at the front of a line, gives the stored events
// their outcome, and reports whether the line changed. An event that is found at its own seq, after
// an event that is not found, changes nothing. Repeated publishes come in runs, so each call that
// finds one doubles the number of ids of the next call. Events that replace others (schedule.go)
// are not looked up: their ids are stored in any case.
func (b *batch) resolveStored(ctx context.Context, at *line) (bool, error) {
	events := at.pending[:min(b.lookup, len(at.pending))]
	if i := slices.IndexFunc(events, func(d *pending) bool { return d.token != 0 }); i >= 0 {
		events = events[:i]
	}
	found, err := b.find(ctx, events)
	if err != nil || len(found) == 0 {
		return false, err
	}
	if err := b.confirm(ctx); err != nil {
		return false, err
	}
	b.met()
	decided := false
	stored := 0 // from the front, by an earlier try whose answer was lost
	for i, d := range events {
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
			o = unreadable(err)
		case s.Record.DeliverAt == 0 && s.Record.Partition == at.p && s.Record.Seq == d.seq:
			if i == stored {
				stored++
			}
			continue
		case s.Cancelled():
			d.token, decided = int64(s.Record.Seq), true
			continue
		default:
			o = repeated(d, s)
		}
		if err := b.replace(ctx, at, i, o); err != nil {
			return false, err
		}
		decided = true
	}
	for _, d := range events[:stored] {
		b.accept(at, d)
	}
	b.lookup = min(2*b.lookup, maxLookup)
	return decided || stored > 0, nil
}

// unreadable is the outcome of an event whose id a broken document has.
func unreadable(err error) eventlog.Outcome {
	return eventlog.Outcome{Err: &eventlog.RefusedError{Cause: fmt.Errorf("its id is taken by a document that cannot be read: %w", err)}}
}

// repeated is the outcome of an event whose id is stored.
func repeated(d *pending, s document.Stored) eventlog.Outcome {
	_, own, _ := d.raw.Lookup(document.FieldHash).BinaryOK()
	same := bytes.Equal(own, s.Hash)
	if s.Record.DeliverAt != 0 {
		if !same {
			return eventlog.Outcome{Err: &eventlog.ConflictError{ID: d.record.ID}}
		}
		return eventlog.Outcome{DeliverAt: s.Record.DeliverAt, Duplicate: true}
	}
	if s.Hash == nil && !s.Gone { // it was removed by hand
		same = codec.SameContent(&d.record.Event, &s.Record.Event)
	}
	if !same {
		return eventlog.Outcome{Err: &eventlog.ConflictError{ID: d.record.ID, Seq: s.Record.Seq}}
	}
	return eventlog.Outcome{Partition: s.Record.Partition, Seq: s.Record.Seq, TS: s.Record.TS, Duplicate: true}
}

// find returns the documents of those events whose ids a majority has, by _id.
func (b *batch) find(ctx context.Context, events []*pending) (map[string]bson.Raw, error) {
	var ids []string
	for _, d := range events {
		if d.call != nil {
			ids = append(ids, b.idOf(d))
		}
	}
	return b.log.findByID(ctx, ids)
}

// findByID returns the events' documents that a majority has, by _id.
func (l *Log) findByID(ctx context.Context, ids []string) (map[string]bson.Raw, error) {
	docs, err := findAll[bson.Raw](ctx, l, l.majority(eventsName), bson.D{idAmong(ids)}, options.Find())
	found := map[string]bson.Raw{}
	for _, raw := range docs {
		id, _ := raw.Lookup(document.FieldID).StringValueOK()
		found[id] = raw
	}
	return found, err
}
