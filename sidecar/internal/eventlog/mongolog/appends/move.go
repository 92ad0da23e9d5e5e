package appends

import (
	"context"
	"fmt"
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
func (b *batch) move(ctx context.Context, lines []*line, chunk []*pending) error {
	within, cancel := b.store.Clock.WithTimeout(ctx, b.store.Timeout/2)
	defer cancel()
	models := make([]mongo.WriteModel, len(chunk))
	for i, d := range chunk {
		if d.raw != nil {
			models[i] = mongo.NewReplaceOneModel().SetFilter(events.Unchanged(b.idOf(d), b.topic.Name, d.token)).SetReplacement(d.raw)
			continue
		}
		set := bson.D{{Key: document.FieldPartition, Value: lines[i].p}, {Key: document.FieldSeq, Value: int64(d.seq)},
			{Key: document.FieldTS, Value: d.record.TS}, {Key: document.FieldAccepted, Value: d.record.AcceptedAt}}
		unset := append(slices.Clip(events.OnlyScheduled), bson.E{Key: document.FieldGone, Value: ""})
		models[i] = mongo.NewUpdateOneModel().SetFilter(append(events.Unchanged(b.idOf(d), b.topic.Name, d.token), events.Scheduled)).
			SetUpdate(bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: unset}})
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
		if !f.duplicate {
			return err
		}
		taken = chunk[stored]
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

// settleMoved looks up the documents that a move stores at the front of a line. It gives an outcome
// to each event that is stored, or that has nothing to replace any more.
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
	for i, d := range ln.pending[:n] {
		o := eventlog.Outcome{Err: fmt.Errorf("event %q of topic %q: %w", d.record.ID, b.topic.Name, eventlog.ErrNotFound)}
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
	return nil
}
