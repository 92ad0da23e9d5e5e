package appends

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// batch holds the events that one batch appends to a topic.
type batch struct {
	*Appender
	topic *topics.Topic
	lone  *lone
	// generation is the topic's generation that the batch is for.
	generation int64
	concern    concern
	lines      []*line
	unanswered *reservation // whose answer was lost; nil: none
	behind     bool         // the head is below seqs that this process was given
	renew      func()       // begins the timeout again, since the server answers
	most       int          // documents in the next insert
	lookup     int          // ids to look up at the next duplicate
	wait       core.Backoff
}

// left is how many documents are not stored yet.
func (b *batch) left() (n int) {
	for _, ln := range b.lines {
		n += len(ln.pending)
	}
	return n
}

// accept removes a stored document from the front of its line.
func (b *batch) accept(ln *line, d *pending) {
	ln.pending = ln.pending[1:]
	topics.Raise(&b.topic.Parts[ln.p].Reserved, d.seq)
	if d.call != nil {
		b.met()
		d.call.answer(d.index, eventlog.Outcome{Partition: ln.p, Seq: d.seq, TS: d.record.TS})
	}
}

// met notes that the store is reachable and meets the topic's write concern.
func (b *batch) met() {
	b.store.Reached()
	if b.setUnmet(b.topic.Name, "") {
		b.store.Logger.Info("the store meets the topic's write concern again", "topic", b.topic.Name)
	}
}

// replace gives the event at a place of its line an outcome, and puts a void there.
func (b *batch) replace(ctx context.Context, ln *line, place int, o eventlog.Outcome) error {
	d := ln.pending[place]
	void, err := b.void(ctx, ln, d.seq)
	if err != nil {
		return err
	}
	ln.pending[place] = void
	d.call.answer(d.index, o)
	return nil
}

// void is a document that takes a seq of a line.
func (b *batch) void(ctx context.Context, ln *line, seq uint64) (*pending, error) {
	now, err := b.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := bson.Marshal(events.Void(b.topic.Name, ln.p, seq, now))
	return &pending{raw: raw, seq: seq}, err
}

// refuse gives the error to all events that have no outcome. They may be stored.
func (b *batch) refuse(err error) {
	for _, ln := range b.lines {
		for _, d := range ln.pending {
			if d.call != nil {
				d.call.answer(d.index, eventlog.Outcome{Err: err})
			}
		}
		ln.pending = nil
	}
}

// chunk returns the next documents to insert, and the line of each.
func (b *batch) chunk() (lines []*line, chunk []*pending) {
	most := b.most
	if b.store.Clock.Since(time.Unix(0, b.topic.Rivals.Load())) < rivalsFor {
		most = min(most, maxRivalInsert)
	}
	bytes := 0
	for _, ln := range b.lines {
		for _, d := range ln.pending {
			bytes += len(d.raw)
			full := len(chunk) == most || len(chunk) > 0 && bytes > maxInsertBytes
			otherWrite := len(chunk) > 0 && (d.token != 0) != (chunk[0].token != 0)
			if d.seq == 0 || full || otherWrite {
				return lines, chunk
			}
			lines, chunk = append(lines, ln), append(chunk, d)
		}
	}
	return lines, chunk
}

// find returns the documents of those events whose ids a majority has, by _id.
func (b *batch) find(ctx context.Context, documents []*pending) (map[string]bson.Raw, error) {
	var ids []string
	for _, d := range documents {
		if d.call != nil {
			ids = append(ids, b.idOf(d))
		}
	}
	return events.FindByID(ctx, b.store, ids)
}

func (b *batch) idOf(d *pending) string { return document.ID(b.topic.Name, b.generation, d.record.ID) }

// confirm returns nil once the events that are stored already are acknowledged according to the
// topic's write concern. If the concern names a number of members, being readable does not prove
// that. A write that changes nothing waits for all earlier writes.
func (b *batch) confirm(ctx context.Context) error {
	if b.concern.members < 2 {
		return nil
	}
	nobody := append(heads.Of(b.topic.Name), bson.E{Key: document.FieldSeq, Value: int64(0)})
	unset := bson.D{{Key: "$unset", Value: bson.D{{Key: events.FieldVoid, Value: ""}}}}
	_, err := b.concern.events.UpdateOne(ctx, nobody, unset)
	return err
}

// unmetConcern is the topic's refusal, if the append failed for its write concern alone: the server
// says so, or a majority has an event that too few members for the concern acknowledged in time. It
// is nil if the store itself may be away.
func (b *batch) unmetConcern(ctx context.Context, cause error) *eventlog.ConcernError {
	if b.concern.members < 2 {
		return nil
	}
	if !isUnmet(cause) && !b.majorityHasNext(ctx) {
		return nil
	}
	return &eventlog.ConcernError{Topic: b.topic.Name, Concern: b.concern.name, Cause: cause}
}

// majorityHasNext reports whether a majority of the members has the first event without an outcome.
// It has a timeout of its own, since the append's is over.
func (b *batch) majorityHasNext(ctx context.Context) bool {
	if !errors.Is(context.Cause(ctx), eventlog.ErrTimeout) {
		return false
	}
	ctx, cancel := b.store.Clock.WithTimeout(context.WithoutCancel(ctx), b.store.Timeout/2)
	defer cancel()
	for _, ln := range b.lines {
		if len(ln.pending) > 0 {
			if ln.pending[0].token != 0 {
				return false // it was stored before the append
			}
			id := ln.pending[0].raw.Lookup(document.FieldID)
			return b.store.Majority(core.Events).FindOne(ctx, bson.D{{Key: document.FieldID, Value: id}}).Err() == nil
		}
	}
	return false
}

const (
	// maxInsert bounds the documents of one insert.
	maxInsert = 1000
	// maxInsertBytes bounds one insert, well below the server's 48 MB.
	maxInsertBytes = 16 << 20
	// maxRivalInsert bounds the documents of one insert while other sidecars also append to the
	// topic: concurrent inserts of neighbours in a unique index cost MongoDB much more than inserts
	// one after the other.
	maxRivalInsert = 100
	// rivalsFor is how long after its append another sidecar still counts as appending.
	rivalsFor = 10 * time.Second
)
