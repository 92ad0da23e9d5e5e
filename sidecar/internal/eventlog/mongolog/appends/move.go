package appends

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
)

// move stores documents of a batch at their seqs. All of them replace other documents: scheduled
// events are released, cancelled ones are replaced. move also handles the outcomes.
//
// Two sidecars may release the same events. Where another one was first, an update matches nothing,
// and that ends no bulk: the next event would get a seq below that of the one before it. So an
// update that fails, anywhere but at this seq, follows each event that others of its line follow.
func (b *batch) move(ctx context.Context, lines []*line, chunk []*pending) error {
	within, cancel := b.store.Clock.WithTimeout(ctx, b.store.Timeout/2)
	defer cancel()
	var models []mongo.WriteModel
	var of []int // the place in the chunk that a model is about
	for i, d := range chunk {
		models, of = append(models, b.moved(lines[i].p, d)), append(of, i)
		if d.raw == nil && i+1 < len(chunk) && lines[i] == lines[i+1] {
			models, of = append(models, b.failElsewhere(d)), append(of, i)
		}
	}
	r, err := b.concern.events.BulkWrite(within, models, options.BulkWrite().SetOrdered(true))
	if err == nil && r.MatchedCount == int64(len(chunk)) {
		for i, d := range chunk {
			b.accept(lines[i], d)
		}
		return nil
	}
	var taken *pending // the document whose seq is taken
	if err != nil {
		stored, f := judge(err)
		if !f.duplicate && !f.refused {
			return err
		}
		if f.duplicate {
			taken = chunk[of[stored]]
		}
	}
	for i, ln := range lines {
		if i == 0 || ln != lines[i-1] {
			if err := b.settleMoved(ctx, ln); err != nil {
				return err
			}
		}
	}
	if ln := lines[0]; taken != nil && len(ln.pending) > 0 && ln.pending[0] == taken {
		return b.giveWay(ctx, ln)
	}
	return nil
}

// moved is the update that stores a document in place of another one.
func (b *batch) moved(partition int, d *pending) mongo.WriteModel {
	was := events.Unchanged(b.idOf(d), b.topic.Name, d.token)
	if d.raw != nil {
		return mongo.NewReplaceOneModel().SetFilter(was).SetReplacement(d.raw)
	}
	set := bson.D{{Key: document.FieldPartition, Value: partition}, {Key: document.FieldSeq, Value: int64(d.seq)},
		{Key: document.FieldTS, Value: d.record.TS}, {Key: document.FieldAccepted, Value: d.record.AcceptedAt}}
	unset := append(slices.Clip(events.OnlyScheduled), bson.E{Key: document.FieldGone, Value: ""})
	return mongo.NewUpdateOneModel().SetFilter(append(was, events.Scheduled)).
		SetUpdate(bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: unset}})
}

// failElsewhere is an update that fails where the event is in the store, but not at its seq: it adds
// to a text.
func (b *batch) failElsewhere(d *pending) mongo.WriteModel {
	elsewhere := bson.D{{Key: document.FieldID, Value: b.idOf(d)}, {Key: document.FieldTopic, Value: b.topic.Name},
		{Key: document.FieldSeq, Value: bson.D{{Key: "$ne", Value: int64(d.seq)}}}}
	add := bson.D{{Key: document.FieldEventID, Value: 1}}
	return mongo.NewUpdateOneModel().SetFilter(elsewhere).SetUpdate(bson.D{{Key: "$inc", Value: add}})
}

// settleMoved looks up the documents that a move stores at the front of a line. It gives an outcome
// to each event that is stored, or that has nothing to replace any more. Where another sidecar has
// put an event at a higher seq, those behind it reserve anew, so that they stay behind it.
func (b *batch) settleMoved(ctx context.Context, ln *line) error {
	n := 0
	for n < len(ln.pending) && ln.pending[n].token != 0 && n < b.most {
		n++
	}
	found, err := b.find(ctx, ln.pending[:n])
	if err == nil {
		err = b.confirm(ctx)
	}
	if err != nil {
		return err
	}
	b.met()
	var stored []*pending
	var above uint64 // the highest seq at which another sidecar put an event of this line
	for i, d := range ln.pending[:n] {
		o := eventlog.Outcome{Err: eventlog.NotFound("event %q of topic %q", d.record.ID, b.topic.Name)}
		raw, ok := found[b.idOf(d)]
		if !ok && d.raw != nil {
			d.token = 0 // the stub of the cancelled event is gone: the event is inserted
			continue
		}
		if ok {
			s, err := document.Decode(raw)
			switch {
			case err != nil:
				o.Err = &eventlog.RefusedError{Cause: err}
			case s.Record.Partition == ln.p && s.Record.Seq == d.seq:
				stored = append(stored, d)
				continue
			case s.Cancelled() && d.raw != nil:
				d.token = int64(s.Record.Seq) // the same stub, or one of a later schedule
				continue
			case d.raw != nil:
				o = Repeated(d.record, d.raw, s)
			case s.Record.DeliverAt != 0 && int64(s.Record.Seq) == d.token:
				continue // unchanged
			case s.Record.Partition == document.Unplaced: // cancelled, and maybe scheduled again
			default:
				o = eventlog.Outcome{Partition: s.Record.Partition, Seq: s.Record.Seq, TS: s.Record.TS, Duplicate: true}
				above = max(above, s.Record.Seq)
			}
		}
		if err := b.replace(ctx, ln, i, o); err != nil {
			return err
		}
	}
	ln.pending = slices.DeleteFunc(ln.pending, func(d *pending) bool { return slices.Contains(stored, d) })
	for _, d := range stored {
		d.call.answer(d.index, eventlog.Outcome{Partition: ln.p, Seq: d.seq, TS: d.record.TS})
	}
	return b.keepBehind(ctx, ln, above)
}

// keepBehind makes the events of a line that have seqs below this one reserve again. Voids take
// their seqs.
func (b *batch) keepBehind(ctx context.Context, ln *line, above uint64) error {
	var again []*pending
	for i, d := range ln.pending {
		if d.call == nil || d.seq > above {
			continue
		}
		void, err := b.void(ctx, ln, d.seq)
		if err != nil {
			return err
		}
		ln.pending[i], d.seq = void, 0
		again = append(again, d)
	}
	ln.pending = append(ln.pending, again...)
	return nil
}
