package epochs

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// markDoc is a mark in the store. It has the time twice: as a date for the server's TTL index, and
// as the caller gave it.
type markDoc struct {
	ID      string `bson:"_id"`
	Expires int64  `bson:"expires"`
}

// markID escapes the group, so that no two marks share an id.
func markID(topic string, generation int64, group, id string) string {
	return marksPrefix(topic, generation, group) + id
}

// marksPrefix begins the _id of all marks of a group.
func marksPrefix(topic string, generation int64, group string) string {
	return document.Prefix(topic, generation) + url.PathEscape(group) + "/"
}

// generationOf is a topic's generation; 0 if the topic does not exist.
func (es *Epochs) generationOf(ctx context.Context, topic string) (int64, error) {
	t, err := es.catalog.Find(ctx, topic)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return t.Generation(), nil
}

// saveMarks returns once the marks are durable. A renewed mark keeps the later of its times.
func (es *Epochs) saveMarks(ctx context.Context, marks []eventlog.Mark) error {
	if len(marks) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(marks))
	for i, m := range marks {
		generation, err := es.generationOf(ctx, m.Topic)
		if err != nil {
			return err
		}
		models[i] = mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(core.ByID(markID(m.Topic, generation, m.Group, m.ID))).
			SetUpdate(bson.D{{Key: "$max", Value: bson.D{
				{Key: "expires", Value: m.ExpiresAt},
				{Key: "expireAt", Value: time.UnixMilli(m.ExpiresAt)},
			}}})
	}
	_, err := es.store.BulkWrite(ctx, core.Marks, models)
	return err
}

// Marked implements eventlog.Groups.
func (es *Epochs) Marked(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error) {
	marked := make([]bool, len(ids))
	project := options.Find().SetProjection(bson.D{{Key: "expires", Value: 1}})
	err := es.store.WithinSession(ctx, "read marks", func(ctx context.Context) error {
		generation, err := es.generationOf(ctx, topic)
		if err != nil {
			return err
		}
		keys := make([]string, len(ids))
		for i, id := range ids {
			keys[i] = markID(topic, generation, group, id)
		}
		expires := map[string]int64{}
		for some := range slices.Chunk(keys, core.MaxStatements) {
			docs, err := core.FindAll[markDoc](ctx, es.store, core.Marks, bson.D{core.IDAmong(some)}, project)
			if err != nil {
				return err
			}
			for _, d := range docs {
				expires[d.ID] = d.Expires
			}
		}
		for i, key := range keys {
			at, found := expires[key]
			marked[i] = found && at > now
		}
		return nil
	})
	return marked, err
}

// SweepMarks implements eventlog.Retainer. A TTL index leaves little for it to do. A mark that is
// renewed meanwhile stays.
func (es *Epochs) SweepMarks(ctx context.Context, now int64, limit int) (removed int, more bool, err error) {
	if limit <= 0 {
		return 0, true, nil
	}
	expired := bson.E{Key: "expireAt", Value: bson.D{{Key: "$lte", Value: time.UnixMilli(now)}}}
	err = es.store.Within(ctx, "sweep marks", func(ctx context.Context) error {
		found := 0
		found, removed, err = es.store.DeleteSome(ctx, core.Marks, bson.D{expired}, options.Find().SetLimit(int64(limit)), expired)
		more = found == limit
		return err
	})
	return removed, more, err
}
