package mongolog

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
func (l *Log) generationOf(ctx context.Context, topic string) (int64, error) {
	t, err := l.topic(ctx, topic)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return t.generation.Load(), nil
}

// saveMarks returns once the marks are durable. A renewed mark keeps the later of its times.
func (l *Log) saveMarks(ctx context.Context, marks []eventlog.Mark) error {
	if len(marks) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(marks))
	for i, m := range marks {
		generation, err := l.generationOf(ctx, m.Topic)
		if err != nil {
			return err
		}
		models[i] = mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(byID(markID(m.Topic, generation, m.Group, m.ID))).
			SetUpdate(bson.D{{Key: "$max", Value: bson.D{
				{Key: "expires", Value: m.ExpiresAt},
				{Key: "expireAt", Value: time.UnixMilli(m.ExpiresAt)},
			}}})
	}
	_, err := l.bulkWrite(ctx, l.majority(marksName), models)
	return err
}

// maxMarkIDs bounds the ids of one query for marks.
const maxMarkIDs = 1000

// Marked implements eventlog.Groups.
func (l *Log) Marked(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error) {
	marked := make([]bool, len(ids))
	project := options.Find().SetProjection(bson.D{{Key: "expires", Value: 1}})
	err := l.withinSession(ctx, "read marks", func(ctx context.Context) error {
		generation, err := l.generationOf(ctx, topic)
		if err != nil {
			return err
		}
		keys := make([]string, len(ids))
		for i, id := range ids {
			keys[i] = markID(topic, generation, group, id)
		}
		expires := map[string]int64{}
		for some := range slices.Chunk(keys, maxMarkIDs) {
			docs, err := findAll[markDoc](ctx, l, l.majority(marksName), bson.D{idAmong(some)}, project)
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
func (l *Log) SweepMarks(ctx context.Context, now int64, limit int) (removed int, more bool, err error) {
	if limit <= 0 {
		return 0, true, nil
	}
	expired := bson.E{Key: "expireAt", Value: bson.D{{Key: "$lte", Value: time.UnixMilli(now)}}}
	err = l.within(ctx, "sweep marks", func(ctx context.Context) error {
		found := 0
		found, removed, err = l.deleteSome(ctx, marksName, bson.D{expired}, options.Find().SetLimit(int64(limit)), expired)
		more = found == limit
		return err
	})
	return removed, more, err
}

// idDoc is a document of which only the _id is read.
type idDoc struct {
	ID string `bson:"_id"`
}

// deleteSome finds documents, and deletes each of them if the conditions still hold.
func (l *Log) deleteSome(ctx context.Context, collection string, filter bson.D, o *options.FindOptionsBuilder, still ...bson.E) (found, removed int, err error) {
	docs, err := findAll[idDoc](ctx, l, l.majority(collection), filter, o.SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil || len(docs) == 0 {
		return 0, 0, err
	}
	ids := make([]string, len(docs))
	for i, d := range docs {
		ids[i] = d.ID
	}
	err = l.persist(ctx, func() error {
		result, err := l.majority(collection).DeleteMany(ctx, append(bson.D{idAmong(ids)}, still...))
		if err == nil {
			removed = int(result.DeletedCount)
		}
		return err
	})
	return len(docs), removed, err
}
