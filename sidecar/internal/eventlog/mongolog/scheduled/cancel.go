package scheduled

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/appends"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
)

// Cancel implements eventlog.Scheduler.
func (s *Scheduler) Cancel(ctx context.Context, name, id string) error {
	t, err := s.catalog.Known(ctx, name)
	if err != nil {
		return err
	}
	key := document.ID(name, t.Generation(), id)
	var unsure *scheduledDoc // the answer to its update was lost
	for {
		done := false
		err := s.store.WithinSession(ctx, "cancel an event of topic "+name, func(ctx context.Context) error {
			docs, err := core.FindAll[scheduledDoc](ctx, s.store, core.Events,
				append(core.ByID(key), events.Scheduled), options.Find().SetProjection(scheduledFields))
			if err != nil {
				return err
			}
			notFound := eventlog.NotFound("scheduled event %q", id)
			if unsure != nil && (len(docs) == 0 || docs[0].Seq != unsure.Seq) {
				// It was cancelled, unless it was released. An event that was published under the
				// id since then has another writer.
				n, err := s.store.Majority(core.Events).CountDocuments(ctx, append(core.ByID(key),
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
			update, err := events.CancelledStub(ctx, s.store, s.newToken())
			if err != nil {
				return err
			}
			r, err := s.store.Majority(core.Events).UpdateOne(ctx, events.Unchanged(key, name, docs[0].Seq), update)
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
		if !s.store.Clock.Sleep(ctx, core.ShortWait) {
			return appends.Unknown(context.Cause(ctx))
		}
	}
}

// Forget removes the scheduled events of a topic's generations up to the given one.
func (s *Scheduler) Forget(ctx context.Context, op, name string, generation int64) error {
	filter := bson.D{{Key: document.FieldTopic, Value: name}, events.Scheduled,
		{Key: document.FieldGeneration, Value: bson.D{{Key: "$lte", Value: generation}}}}
	for found := 1; found > 0; {
		err := s.store.Within(ctx, op, func(ctx context.Context) (err error) {
			o := options.Find().SetHint(s.store.Hint(events.ByTopicDue)).SetLimit(events.Batch)
			found, _, err = s.store.DeleteSome(ctx, core.Events, filter, o,
				events.InPartition(name, document.Unplaced)...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
