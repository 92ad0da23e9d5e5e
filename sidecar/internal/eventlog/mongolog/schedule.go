package mongolog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// A scheduled event is among the events, under its permanent _id, so one look-up shows that its id
// is taken. It is not live. Its partition has no readers. Its seq is a random number, another one
// each time that the id is scheduled.
//
// One update releases the event: it sets partition, seq and times, and its filter names that
// number. So of all updates that release or cancel the event, including late ones, only one has an
// effect. The update is a step of a batch that appends (append.go), with seqs that are reserved as
// for any event. If the event is gone by then, a void takes the seq.
//
// A cancelled event leaves its _id taken for Options.SeqTaken, so that a late insert of the event
// collides with it. The id is free nevertheless: the next publish under it replaces that document,
// and its filter names the number.
//
// A scheduled event of an earlier generation was deleted with its topic. It is removed when it is
// found.

// byDue and byTopicDue have entries of scheduled events only.
var (
	byDue      = ascending(document.FieldDueSlot, document.FieldDeliverAt, document.FieldID)
	byTopicDue = ascending(document.FieldTopic, document.FieldDeliverAt, document.FieldEventID)
)

// isScheduled is the condition on scheduled events.
var isScheduled = bson.E{Key: document.FieldDeliverAt, Value: bson.D{{Key: "$gt", Value: int64(0)}}}

// scheduledDoc has the fields of a scheduled event that this package reads.
type scheduledDoc struct {
	ID         string `bson:"_id"`
	Topic      string `bson:"topic"`
	Seq        int64  `bson:"seq"`
	EventID    string `bson:"id"`
	Key        string `bson:"key"`
	DeliverAt  int64  `bson:"deliver_at"`
	Generation int64  `bson:"generation"`
	Writer     int64  `bson:"writer"`
}

var scheduledFields = bson.D{{Key: document.FieldTopic, Value: 1}, {Key: document.FieldSeq, Value: 1}, {Key: document.FieldEventID, Value: 1},
	{Key: document.FieldKey, Value: 1}, {Key: document.FieldDeliverAt, Value: 1}, {Key: fieldGeneration, Value: 1},
	{Key: document.FieldWriter, Value: 1}}

// place is a Scheduled's Place: the number, and the generation.
type place struct{ token, generation int64 }

func (p place) String() string {
	return strconv.FormatInt(p.token, 36) + "~" + strconv.FormatInt(p.generation, 10)
}

func placeOf(w *eventlog.Scheduled) (p place) {
	token, generation, _ := strings.Cut(w.Place, "~")
	p.token, _ = strconv.ParseInt(token, 36, 64)
	p.generation, _ = strconv.ParseInt(generation, 10, 64)
	return p
}

func (d *scheduledDoc) scheduled() eventlog.Scheduled {
	return eventlog.Scheduled{Topic: d.Topic, ID: d.EventID, Key: d.Key, DeliverAt: d.DeliverAt, Place: place{d.Seq, d.Generation}.String()}
}

// still selects a scheduled event while nothing has replaced, released or cancelled it.
func still(id, topic string, token int64) bson.D {
	return bson.D{{Key: document.FieldID, Value: id}, {Key: document.FieldTopic, Value: topic},
		{Key: document.FieldPartition, Value: document.Unplaced}, {Key: document.FieldSeq, Value: token}}
}

// schedule stores scheduled events, and sets their outcomes.
func (l *Log) schedule(ctx context.Context, name string, batch []*eventlog.Record, out []eventlog.Outcome) {
	err := l.within(ctx, "schedule events of topic "+name, func(ctx context.Context) error {
		t, err := l.topic(ctx, name)
		if err != nil {
			return err
		}
		s := scheduling{log: l, topic: t, generation: t.generation.Load(), batch: batch, out: out, docs: make([]bson.Raw, len(batch))}
		var wait backoff
		for {
			err := s.step(ctx)
			if len(s.left()) == 0 || isPermanent(err) {
				return err
			}
			if wait.sleep(ctx, l.opts.Clock, shortWait) != nil {
				return errors.Join(err, errBehind)
			}
		}
	})
	for i := range out {
		if err != nil && out[i] == (eventlog.Outcome{}) {
			out[i].Err = unknown(err)
		}
	}
}

// scheduling is one call of schedule.
type scheduling struct {
	log        *Log
	topic      *topic
	generation int64
	batch      []*eventlog.Record
	out        []eventlog.Outcome
	docs       []bson.Raw // of the batch's events; nil: not made yet
}

// left are the indexes of the events without an outcome.
func (s *scheduling) left() (left []int) {
	for i, o := range s.out {
		if o == (eventlog.Outcome{}) {
			left = append(left, i)
		}
	}
	return left
}

// step inserts the events without an outcome, and looks up ids that are taken. If the outcome of an
// insert is unknown, the next step inserts the same documents again.
func (s *scheduling) step(ctx context.Context) error {
	var docs []any
	var of []int
	for _, i := range s.left() {
		if s.docs[i] == nil {
			event := *s.batch[i]
			event.Partition, event.Seq = document.Unplaced, uint64(newToken())
			raw, err := document.Append(nil, s.topic.Name, s.generation, &event, rand.Int64())
			if err != nil {
				s.out[i].Err = &eventlog.RefusedError{Cause: err}
				continue
			}
			s.docs[i] = raw
		}
		docs, of = append(docs, s.docs[i]), append(of, i)
	}
	if len(docs) == 0 {
		return nil
	}
	taken := map[int]bool{} // by index in docs
	_, err := s.log.majority(eventsName).InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && bulk.WriteConcernError == nil {
		err = nil
		for _, e := range bulk.WriteErrors {
			switch {
			case e.Code == codeDuplicateKey:
				taken[e.Index] = true
			case isBadDocument(e.WriteError):
				s.out[of[e.Index]].Err = &eventlog.RefusedError{Cause: e.WriteError}
			default:
				return e.WriteError
			}
		}
	}
	if err != nil {
		return err
	}
	s.log.reached()
	var repeats []int
	for n, i := range of {
		if taken[n] {
			repeats = append(repeats, i)
		} else if s.out[i] == (eventlog.Outcome{}) {
			s.out[i].DeliverAt = s.batch[i].DeliverAt
		}
	}
	return s.resolve(ctx, repeats)
}

// resolve gives events whose ids, or numbers, are taken their outcomes.
func (s *scheduling) resolve(ctx context.Context, repeats []int) error {
	if len(repeats) == 0 {
		return nil
	}
	ids := make([]string, len(repeats))
	for n, i := range repeats {
		ids[n] = document.ID(s.topic.Name, s.generation, s.batch[i].ID)
	}
	found, err := s.log.findByID(ctx, ids)
	if err != nil {
		return err
	}
	for n, i := range repeats {
		raw, ok := found[ids[n]]
		if !ok { // not on a majority yet, just removed, or another number is needed
			s.docs[i] = nil
			continue
		}
		own, _ := s.docs[i].Lookup(document.FieldSeq).AsInt64OK()
		switch was, err := document.Decode(raw); {
		case err != nil:
			s.out[i] = unreadable(err)
		case was.Record.DeliverAt != 0 && int64(was.Record.Seq) == own: // by an earlier try
			s.out[i].DeliverAt = s.batch[i].DeliverAt
		case was.Cancelled():
			if err := s.replace(ctx, i, ids[n], int64(was.Record.Seq)); err != nil {
				return err
			}
		default:
			s.out[i] = repeated(&pending{record: s.batch[i], raw: s.docs[i]}, was)
		}
	}
	return nil
}

// replace stores an event in place of a cancelled one. If the cancelled one has changed meanwhile,
// the next step handles the event.
func (s *scheduling) replace(ctx context.Context, i int, id string, token int64) error {
	r, err := s.log.majority(eventsName).ReplaceOne(ctx, still(id, s.topic.Name, token), s.docs[i])
	if err == nil && r.MatchedCount == 1 {
		s.out[i].DeliverAt = s.batch[i].DeliverAt
	}
	return err
}

// Due implements eventlog.Scheduler.
func (l *Log) Due(ctx context.Context, slots []int, last *eventlog.Scheduled, now int64, limit int) (due []eventlog.Scheduled, next int64, err error) {
	err = l.within(ctx, "find scheduled events that are due", func(ctx context.Context) error {
		at := bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lte", Value: now}}
		var behind []bson.E
		if last != nil {
			at[0] = bson.E{Key: "$gte", Value: last.DeliverAt}
			id := document.ID(last.Topic, placeOf(last).generation, last.ID)
			behind = []bson.E{{Key: "$or", Value: bson.A{
				bson.D{{Key: document.FieldDeliverAt, Value: bson.D{{Key: "$gt", Value: last.DeliverAt}}}},
				bson.D{{Key: document.FieldID, Value: bson.D{{Key: "$gt", Value: id}}}}}}}
		}
		docs, err := l.findDue(ctx, slots, at, limit, behind...)
		for i := range docs {
			due = append(due, docs[i].scheduled())
		}
		if err != nil || len(docs) == limit {
			return err
		}
		docs, err = l.findDue(ctx, slots, bson.D{{Key: "$gt", Value: now}}, 1)
		if err == nil && len(docs) > 0 {
			next = docs[0].DeliverAt
		}
		return err
	})
	return due, next, err
}

// findDue finds scheduled events by time.
func (l *Log) findDue(ctx context.Context, slots []int, at bson.D, limit int, more ...bson.E) ([]scheduledDoc, error) {
	filter := append(bson.D{inSlots(slots), {Key: document.FieldDeliverAt, Value: at}}, more...)
	return findAll[scheduledDoc](ctx, l, l.majority(eventsName), filter, options.Find().SetHint(l.hint(byDue)).
		SetSort(bson.D{{Key: document.FieldDeliverAt, Value: 1}, {Key: document.FieldID, Value: 1}}).SetLimit(int64(limit)).SetProjection(scheduledFields))
}

// inSlots is the condition on slots; nil: all.
func inSlots(slots []int) bson.E {
	if slots == nil {
		for slot := range eventlog.SchedulerSlots {
			slots = append(slots, slot)
		}
	}
	return bson.E{Key: document.FieldDueSlot, Value: bson.D{{Key: "$in", Value: slots}}}
}

// Release implements eventlog.Scheduler.
func (l *Log) Release(ctx context.Context, name string, due []eventlog.Scheduled, now int64) []eventlog.Outcome {
	outs := make([]eventlog.Outcome, len(due))
	if err := l.release(ctx, name, due, now, outs); err != nil {
		for i := range outs {
			if outs[i] == (eventlog.Outcome{}) {
				outs[i].Err = unknown(err)
			}
		}
	}
	return outs
}

func (l *Log) release(ctx context.Context, name string, due []eventlog.Scheduled, now int64, outs []eventlog.Outcome) error {
	t, err := l.ofDue(ctx, name, due)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	generation := int64(math.MaxInt64) // above all generations that were deleted
	if err == nil {
		generation = t.generation.Load()
	}
	calls := map[int]*call{}
	all := make([]eventlog.Outcome, len(due)) // of the calls, which may outlast this function
	for i := range due {
		w, was := &due[i], placeOf(&due[i])
		if was.generation != generation {
			outs[i].Err = fmt.Errorf("event %q of topic %q: %w", w.ID, name, eventlog.ErrNotFound)
			if was.generation < generation {
				if err := l.unschedule(ctx, document.ID(name, was.generation, w.ID), name, was.token); err != nil {
					return err
				}
			}
			continue
		}
		p := eventlog.PartitionOf(w.Key, w.ID, len(t.partitions))
		c := calls[p]
		if c == nil {
			c = &call{ctx: ctx, topic: t, p: p, generation: generation, out: all, done: make(chan struct{})}
			calls[p] = c
		}
		rec := &eventlog.Record{AcceptedAt: now}
		rec.ID, rec.TS = w.ID, now
		c.events = append(c.events, &pending{call: c, at: i, record: rec, token: was.token})
		c.left++
	}
	for _, c := range calls {
		if err := l.enqueue(c); err != nil {
			return err
		}
	}
	for _, c := range calls {
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, d := range c.events {
			if outs[d.at] = all[d.at]; errors.Is(outs[d.at].Err, errAnotherGeneration) {
				outs[d.at].Err = notThere(name)
			}
		}
	}
	return nil
}

// ofDue finds the topic of due events, in a generation no older than theirs.
func (l *Log) ofDue(ctx context.Context, name string, due []eventlog.Scheduled) (*topic, error) {
	t, err := l.known(ctx, name)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(due, func(w eventlog.Scheduled) bool { return placeOf(&w).generation != t.generation.Load() }) {
		err = l.reread(ctx, name)
	}
	return t, err
}

// unschedule removes a scheduled event.
func (l *Log) unschedule(ctx context.Context, id, topic string, token int64) error {
	return l.within(ctx, "remove a scheduled event of topic "+topic, func(ctx context.Context) error {
		return l.persist(ctx, func() error {
			_, err := l.majority(eventsName).DeleteOne(ctx, still(id, topic, token))
			return err
		})
	})
}

// ListScheduled implements eventlog.Scheduler.
func (l *Log) ListScheduled(ctx context.Context, name string, after *eventlog.Point, limit int) (list []eventlog.Scheduled, err error) {
	t, err := l.known(ctx, name)
	if err != nil {
		return nil, err
	}
	filter := l.scheduledOf(t)
	if after != nil {
		filter[1].Value = bson.D{{Key: "$gte", Value: after.TS}}
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: document.FieldDeliverAt, Value: bson.D{{Key: "$gt", Value: after.TS}}}},
			bson.D{{Key: document.FieldEventID, Value: bson.D{{Key: "$gt", Value: after.ID}}}}}})
	}
	err = l.withinSession(ctx, "list scheduled events of topic "+name, func(ctx context.Context) error {
		docs, err := findAll[scheduledDoc](ctx, l, l.majority(eventsName), filter, options.Find().SetHint(l.hint(byTopicDue)).
			SetSort(bson.D{{Key: document.FieldDeliverAt, Value: 1}, {Key: document.FieldEventID, Value: 1}}).SetLimit(int64(limit)).SetProjection(scheduledFields))
		for i := range docs {
			list = append(list, docs[i].scheduled())
		}
		return err
	})
	return list, err
}

// scheduledOf selects a topic's scheduled events.
func (l *Log) scheduledOf(t *topic) bson.D {
	return bson.D{{Key: document.FieldTopic, Value: t.Name}, isScheduled, {Key: fieldGeneration, Value: t.generation.Load()}}
}

// CountScheduled implements eventlog.Scheduler.
func (l *Log) CountScheduled(ctx context.Context, name string) (int64, error) {
	t, err := l.known(ctx, name)
	if err != nil {
		return 0, err
	}
	counts, err := l.countScheduled(ctx, l.scheduledOf(t), byTopicDue)
	return counts[name], err
}

// CountSlots implements eventlog.Scheduler.
func (l *Log) CountSlots(ctx context.Context, slots []int) (map[string]int64, error) {
	if slots != nil && len(slots) == 0 {
		return nil, nil
	}
	return l.countScheduled(ctx, bson.D{inSlots(slots), isScheduled}, byDue)
}

func (l *Log) countScheduled(ctx context.Context, filter, index bson.D) (counts map[string]int64, err error) {
	o := options.Aggregate()
	err = l.within(ctx, "count scheduled events", func(ctx context.Context) error {
		if hint := l.hint(index); hint != nil {
			o.SetHint(hint)
		}
		return l.persist(ctx, func() error {
			cursor, err := l.majority(eventsName).Aggregate(ctx, bson.A{
				bson.D{{Key: "$match", Value: filter}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
			}, o)
			if err != nil {
				return err
			}
			var found []struct {
				Topic string `bson:"_id"`
				N     int64  `bson:"n"`
			}
			if err := cursor.All(ctx, &found); err != nil {
				return err
			}
			counts = map[string]int64{}
			for _, f := range found {
				counts[f.Topic] = f.N
			}
			return nil
		})
	})
	return counts, err
}

// Cancel implements eventlog.Scheduler.
func (l *Log) Cancel(ctx context.Context, name, id string) error {
	t, err := l.known(ctx, name)
	if err != nil {
		return err
	}
	key := document.ID(name, t.generation.Load(), id)
	var unsure *scheduledDoc // the answer to its update was lost
	for {
		done := false
		err := l.withinSession(ctx, "cancel an event of topic "+name, func(ctx context.Context) error {
			docs, err := findAll[scheduledDoc](ctx, l, l.majority(eventsName), append(byID(key), isScheduled), options.Find().SetProjection(scheduledFields))
			if err != nil {
				return err
			}
			notFound := fmt.Errorf("scheduled event %q: %w", id, eventlog.ErrNotFound)
			if unsure != nil && (len(docs) == 0 || docs[0].Seq != unsure.Seq) {
				// It was cancelled, unless it was released. An event that was published under the
				// id since then has another writer.
				n, err := l.majority(eventsName).CountDocuments(ctx, append(byID(key),
					bson.E{Key: document.FieldPartition, Value: bson.D{{Key: "$gte", Value: 0}}}, bson.E{Key: document.FieldWriter, Value: unsure.Writer}))
				if err == nil && n > 0 {
					err = notFound
				}
				done = err == nil
				return err
			}
			if len(docs) == 0 {
				return notFound
			}
			update, err := l.cancelled(ctx)
			if err != nil {
				return err
			}
			r, err := l.majority(eventsName).UpdateOne(ctx, still(key, name, docs[0].Seq), update)
			if err != nil {
				unsure = &docs[0]
				return nil
			}
			done = r.MatchedCount == 1
			return nil
		})
		if err != nil || done {
			return err
		}
		if !l.opts.Clock.Sleep(ctx, shortWait) {
			return unknown(context.Cause(ctx))
		}
	}
}

// cancelled is the update that turns a scheduled event into the stub of a cancelled one.
func (l *Log) cancelled(ctx context.Context) (bson.D, error) {
	now, err := l.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	update := stubUpdate(now, forgetful.expireAt(0, now, l.opts.SeqTaken), append(slices.Clip(onlyScheduled), contentHash, bson.E{Key: document.FieldWriter, Value: ""}))
	set := update[0].Value.(bson.D)
	update[0].Value = append(set, bson.E{Key: document.FieldSeq, Value: newToken()})
	return update, nil
}

// newToken is a random seq for a scheduled event.
func newToken() int64 { return rand.Int64N(math.MaxInt64-1) + 1 }

// forgetScheduled removes the scheduled events of a topic's generations up to the given one.
func (l *Log) forgetScheduled(ctx context.Context, op, name string, generation int64) error {
	filter := bson.D{{Key: document.FieldTopic, Value: name}, isScheduled, {Key: fieldGeneration, Value: bson.D{{Key: "$lte", Value: generation}}}}
	for found := 1; found > 0; {
		err := l.within(ctx, op, func(ctx context.Context) (err error) {
			found, _, err = l.deleteSome(ctx, eventsName, filter, options.Find().SetHint(l.hint(byTopicDue)).SetLimit(sweepBatch),
				inPartition(name, document.Unplaced)...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// move stores documents of a batch at their seqs. All of them replace other documents: scheduled
// events are released, cancelled ones are replaced. move also handles the outcomes.
func (b *batch) move(ctx context.Context, lines []*line, chunk []*pending) error {
	within, cancel := b.log.opts.Clock.WithTimeout(ctx, b.log.opts.Timeout/2)
	defer cancel()
	models := make([]mongo.WriteModel, len(chunk))
	for i, d := range chunk {
		if d.raw != nil {
			models[i] = mongo.NewReplaceOneModel().SetFilter(still(b.idOf(d), b.topic.Name, d.token)).SetReplacement(d.raw)
			continue
		}
		set := bson.D{{Key: document.FieldPartition, Value: lines[i].p}, {Key: document.FieldSeq, Value: int64(d.seq)},
			{Key: document.FieldTS, Value: d.record.TS}, {Key: document.FieldAccepted, Value: d.record.AcceptedAt}}
		models[i] = mongo.NewUpdateOneModel().SetFilter(append(still(b.idOf(d), b.topic.Name, d.token), isScheduled)).
			SetUpdate(bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: append(slices.Clip(onlyScheduled), bson.E{Key: document.FieldGone, Value: ""})}})
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
		at, f := judge(err)
		if !f.duplicate {
			return err
		}
		taken = chunk[at]
	}
	for i, at := range lines {
		if i == 0 || at != lines[i-1] {
			if err := b.settleMoved(ctx, at); err != nil {
				return err
			}
		}
	}
	if at := lines[0]; taken != nil && len(at.pending) > 0 && at.pending[0] == taken {
		return b.giveWay(ctx, at)
	}
	return nil
}

// onlyScheduled are the fields that only a scheduled event has.
var onlyScheduled = bson.D{{Key: document.FieldDeliverAt, Value: ""}, {Key: document.FieldDueSlot, Value: ""}, {Key: fieldGeneration, Value: ""}}

func (b *batch) idOf(d *pending) string { return document.ID(b.topic.Name, b.generation, d.record.ID) }

// settleMoved looks up the documents that a move stores at the front of a line. It gives an outcome
// to each event that is stored, or that has nothing to replace any more.
func (b *batch) settleMoved(ctx context.Context, at *line) error {
	n := 0
	for n < len(at.pending) && at.pending[n].token != 0 && n < b.most {
		n++
	}
	found, err := b.find(ctx, at.pending[:n])
	if err == nil {
		err = b.confirm(ctx)
	}
	if err != nil {
		return err
	}
	b.met()
	var stored []*pending
	for i, d := range at.pending[:n] {
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
			case s.Record.Partition == at.p && s.Record.Seq == d.seq:
				stored = append(stored, d)
				continue
			case s.Cancelled() && d.raw != nil:
				d.token = int64(s.Record.Seq) // the same stub, or one of a later schedule
				continue
			case d.raw != nil:
				o = repeated(d, s)
			case s.Record.DeliverAt != 0 && int64(s.Record.Seq) == d.token:
				continue // unchanged
			case s.Record.Partition == document.Unplaced: // cancelled, and maybe scheduled again
			default:
				o = eventlog.Outcome{Partition: s.Record.Partition, Seq: s.Record.Seq, TS: s.Record.TS, Duplicate: true}
			}
		}
		if err := b.replace(ctx, at, i, o); err != nil {
			return err
		}
	}
	at.pending = slices.DeleteFunc(at.pending, func(d *pending) bool { return slices.Contains(stored, d) })
	for _, d := range stored {
		d.call.answer(d.at, eventlog.Outcome{Partition: at.p, Seq: d.seq, TS: d.record.TS})
	}
	return nil
}
