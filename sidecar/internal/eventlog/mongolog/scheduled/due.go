package scheduled

import (
	"context"
	"errors"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/appends"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Due implements eventlog.Scheduler.
func (s *Scheduler) Due(
	ctx context.Context, slots []int, last *eventlog.Scheduled, now int64, limit int,
) (due []eventlog.Scheduled, next int64, err error) {
	err = s.store.Within(ctx, "find scheduled events that are due", func(ctx context.Context) error {
		at := bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lte", Value: now}}
		var behind []bson.E
		if last != nil {
			at[0] = bson.E{Key: "$gte", Value: last.DeliverAt}
			behind = []bson.E{{Key: "$or", Value: bson.A{
				bson.D{{Key: document.FieldDeliverAt, Value: bson.D{{Key: "$gt", Value: last.DeliverAt}}}},
				bson.D{{Key: document.FieldSeq, Value: bson.D{{Key: "$gt", Value: placeOf(last).token}}}}}}}
		}
		docs, err := s.findDue(ctx, slots, at, limit, behind...)
		for i := range docs {
			due = append(due, docs[i].scheduled())
		}
		if err != nil || len(docs) == limit {
			return err
		}
		docs, err = s.findDue(ctx, slots, bson.D{{Key: "$gt", Value: now}}, 1)
		if err == nil && len(docs) > 0 {
			next = docs[0].DeliverAt
		}
		return err
	})
	return due, next, err
}

// findDue finds scheduled events by time.
func (s *Scheduler) findDue(ctx context.Context, slots []int, at bson.D, limit int, more ...bson.E) ([]scheduledDoc, error) {
	filter := append(bson.D{inSlots(slots), {Key: document.FieldDeliverAt, Value: at}}, more...)
	return core.FindAll[scheduledDoc](ctx, s.store, core.Events, filter, options.Find().SetHint(s.store.Hint(events.ByDue)).
		SetSort(events.Ascending(document.FieldDeliverAt, document.FieldSeq)).SetLimit(int64(limit)).SetProjection(scheduledFields))
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
func (s *Scheduler) Release(ctx context.Context, name string, due []eventlog.Scheduled, now int64) []eventlog.Outcome {
	outs := make([]eventlog.Outcome, len(due))
	if err := s.release(ctx, name, due, now, outs); err != nil {
		for i := range outs {
			if outs[i] == (eventlog.Outcome{}) {
				outs[i].Err = appends.Unknown(err)
			}
		}
	}
	return outs
}

func (s *Scheduler) release(ctx context.Context, name string, due []eventlog.Scheduled, now int64, outs []eventlog.Outcome) error {
	t, err := s.ofDue(ctx, name, due)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	generation := int64(math.MaxInt64) // above all generations that were deleted
	if err == nil {
		generation = t.Generation()
	}
	var moves []appends.Move
	var indexes []int // of moves, in due
	for i := range due {
		w, was := &due[i], placeOf(&due[i])
		if was.generation == generation {
			p := eventlog.PartitionOf(w.Key, w.ID, len(t.Parts))
			moves, indexes = append(moves, appends.Move{ID: w.ID, Partition: p, Token: was.token}), append(indexes, i)
			continue
		}
		outs[i].Err = eventlog.NotFound("event %q of topic %q", w.ID, name)
		if was.generation < generation {
			if err := s.remove(ctx, document.ID(name, was.generation, w.ID), name, was.token); err != nil {
				return err
			}
		}
	}
	moved, err := s.appends.Move(ctx, t, generation, moves, now)
	for n, i := range indexes {
		outs[i] = moved[n]
	}
	return err
}

// ofDue finds the topic of due events, in a generation no older than theirs.
func (s *Scheduler) ofDue(ctx context.Context, name string, due []eventlog.Scheduled) (*topics.Topic, error) {
	t, err := s.catalog.Known(ctx, name)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(due, func(w eventlog.Scheduled) bool { return placeOf(&w).generation != t.Generation() }) {
		err = s.catalog.Reread(ctx, name)
	}
	return t, err
}

// remove removes a scheduled event.
func (s *Scheduler) remove(ctx context.Context, id, topic string, token int64) error {
	return s.store.Within(ctx, "remove a scheduled event of topic "+topic, func(ctx context.Context) error {
		return s.store.Persist(ctx, func() error {
			_, err := s.store.Majority(core.Events).DeleteOne(ctx, events.Unchanged(id, topic, token))
			return err
		})
	})
}

// ListScheduled implements eventlog.Scheduler.
func (s *Scheduler) ListScheduled(
	ctx context.Context, name string, after *eventlog.Point, limit int,
) (list []eventlog.Scheduled, err error) {
	t, err := s.catalog.Known(ctx, name)
	if err != nil {
		return nil, err
	}
	filter := s.scheduledOf(t)
	if after != nil {
		filter[1].Value = bson.D{{Key: "$gte", Value: after.TS}}
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: document.FieldDeliverAt, Value: bson.D{{Key: "$gt", Value: after.TS}}}},
			bson.D{{Key: document.FieldEventID, Value: bson.D{{Key: "$gt", Value: after.ID}}}}}})
	}
	err = s.store.WithinSession(ctx, "list scheduled events of topic "+name, func(ctx context.Context) error {
		docs, err := core.FindAll[scheduledDoc](ctx, s.store, core.Events, filter, options.Find().SetHint(s.store.Hint(events.ByTopicDue)).
			SetSort(events.Ascending(document.FieldDeliverAt, document.FieldEventID)).SetLimit(int64(limit)).SetProjection(scheduledFields))
		for i := range docs {
			list = append(list, docs[i].scheduled())
		}
		return err
	})
	return list, err
}

// scheduledOf selects a topic's scheduled events.
func (s *Scheduler) scheduledOf(t *topics.Topic) bson.D {
	return bson.D{{Key: document.FieldTopic, Value: t.Name}, events.Scheduled, {Key: document.FieldGeneration, Value: t.Generation()}}
}

// CountScheduled implements eventlog.Scheduler.
func (s *Scheduler) CountScheduled(ctx context.Context, name string) (eventlog.Waiting, error) {
	t, err := s.catalog.Known(ctx, name)
	if err != nil {
		return eventlog.Waiting{}, err
	}
	counts, err := s.countScheduled(ctx, s.scheduledOf(t), events.ByTopicDue)
	return counts[name], err
}

// CountSlots implements eventlog.Scheduler.
func (s *Scheduler) CountSlots(ctx context.Context, slots []int) (map[string]eventlog.Waiting, error) {
	if slots != nil && len(slots) == 0 {
		return nil, nil
	}
	return s.countScheduled(ctx, bson.D{inSlots(slots), events.Scheduled}, events.ByDue)
}

func (s *Scheduler) countScheduled(ctx context.Context, filter, index bson.D) (counts map[string]eventlog.Waiting, err error) {
	o := options.Aggregate()
	err = s.store.Within(ctx, "count scheduled events", func(ctx context.Context) error {
		if hint := s.store.Hint(index); hint != nil {
			o.SetHint(hint)
		}
		return s.store.Persist(ctx, func() error {
			cursor, err := s.store.Majority(core.Events).Aggregate(ctx, bson.A{
				bson.D{{Key: "$match", Value: filter}},
				bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}},
					{Key: "bytes", Value: bson.D{{Key: "$sum", Value: "$" + document.FieldBytes}}}}}},
			}, o)
			if err != nil {
				return err
			}
			var found []struct {
				Topic string `bson:"_id"`
				N     int64  `bson:"n"`
				Bytes int64  `bson:"bytes"`
			}
			if err := cursor.All(ctx, &found); err != nil {
				return err
			}
			counts = map[string]eventlog.Waiting{}
			for _, f := range found {
				counts[f.Topic] = eventlog.Waiting{Events: f.N, Bytes: f.Bytes}
			}
			return nil
		})
	})
	return counts, err
}
