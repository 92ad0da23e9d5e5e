// Package scheduled keeps events that are to be delivered later, and releases them when they are
// due.
//
// A scheduled event is among the events, under its permanent _id, so one look-up shows that its id
// is taken. It is not live. Its partition has no readers. Its seq is a number that says in which
// order events were accepted, another one each time that the id is scheduled.
//
// One update releases the event: it sets partition, seq and times, and its filter names that
// number. So of all updates that release or cancel the event, including late ones, only one has an
// effect. The update is a step of a batch that appends, with seqs that are reserved as for any
// event. If the event is gone by then, a void takes the seq.
//
// A cancelled event leaves its _id taken for core.Config.SeqTaken, so that a late insert of the
// event collides with it. The id is free nevertheless: the next publish under it replaces that
// document, and its filter names the number.
//
// A scheduled event of an earlier generation was deleted with its topic. It is removed when it is
// found.
package scheduled

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/appends"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Scheduler keeps the scheduled events of a store.
type Scheduler struct {
	store   *core.Store
	catalog *topics.Catalog
	appends *appends.Appender
	numbers eventlog.Acceptances
}

// New makes a Scheduler.
func New(s *core.Store, c *topics.Catalog, a *appends.Appender) *Scheduler {
	return &Scheduler{store: s, catalog: c, appends: a}
}

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

var scheduledFields = events.Ascending(document.FieldTopic, document.FieldSeq, document.FieldEventID, document.FieldKey,
	document.FieldDeliverAt, document.FieldGeneration, document.FieldWriter)

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

// Append stores scheduled events, and sets their outcomes.
func (s *Scheduler) Append(ctx context.Context, name string, batch []*eventlog.Record, out []eventlog.Outcome) {
	err := s.store.Within(ctx, "schedule events of topic "+name, func(ctx context.Context) error {
		t, err := s.catalog.Find(ctx, name)
		if err != nil {
			return err
		}
		x := scheduling{Scheduler: s, topic: t, generation: t.Generation(), batch: batch, out: out, docs: make([]bson.Raw, len(batch))}
		var wait core.Backoff
		for {
			err := x.step(ctx)
			if len(x.left()) == 0 || core.IsPermanent(err) {
				return err
			}
			if wait.Sleep(ctx, s.store.Clock, core.ShortWait) != nil {
				return errors.Join(err, core.ErrBehind)
			}
		}
	})
	for i := range out {
		if err != nil && out[i] == (eventlog.Outcome{}) {
			out[i].Err = appends.Unknown(err)
		}
	}
}

// scheduling is one call of Append.
type scheduling struct {
	*Scheduler
	topic      *topics.Topic
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
	var indexes []int // of docs, in the batch
	for _, i := range s.left() {
		if s.docs[i] == nil {
			event := *s.batch[i]
			event.Partition, event.Seq = document.Unplaced, uint64(s.newToken())
			raw, err := document.Append(nil, s.topic.Name, s.generation, &event, rand.Int64())
			if err != nil {
				s.out[i].Err = &eventlog.RefusedError{Cause: err}
				continue
			}
			s.docs[i] = raw
		}
		docs, indexes = append(docs, s.docs[i]), append(indexes, i)
	}
	if len(docs) == 0 {
		return nil
	}
	taken := map[int]bool{} // by index in docs
	_, err := s.store.Majority(core.Events).InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && bulk.WriteConcernError == nil {
		err = nil
		for _, e := range bulk.WriteErrors {
			switch {
			case e.Code == core.CodeDuplicateKey:
				taken[e.Index] = true
			case core.IsBadDocument(e.WriteError):
				s.out[indexes[e.Index]].Err = &eventlog.RefusedError{Cause: e.WriteError}
			default:
				return e.WriteError
			}
		}
	}
	if err != nil {
		return err
	}
	s.store.Reached()
	var repeats []int
	for n, i := range indexes {
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
	found, err := events.FindByID(ctx, s.store, ids)
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
			s.out[i] = appends.Unreadable(err)
		case was.Record.DeliverAt != 0 && int64(was.Record.Seq) == own: // by an earlier try
			s.out[i].DeliverAt = s.batch[i].DeliverAt
		case was.Cancelled():
			if err := s.replace(ctx, i, ids[n], int64(was.Record.Seq)); err != nil {
				return err
			}
		default:
			s.out[i] = appends.Repeated(s.batch[i], s.docs[i], was)
		}
	}
	return nil
}

// replace stores an event in place of a cancelled one. If the cancelled one has changed meanwhile,
// the next step handles the event.
func (s *scheduling) replace(ctx context.Context, i int, id string, token int64) error {
	r, err := s.store.Majority(core.Events).ReplaceOne(ctx, events.Unchanged(id, s.topic.Name, token), s.docs[i])
	if err == nil && r.MatchedCount == 1 {
		s.out[i].DeliverAt = s.batch[i].DeliverAt
	}
	return err
}

// newToken is the seq of a scheduled event, or of the stub of a cancelled one.
func (s *Scheduler) newToken() int64 { return s.numbers.Next(s.store.Clock.Now()) }
