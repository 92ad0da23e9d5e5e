package mongolog

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// readable are the events that retention has not removed.
var readable = bson.E{Key: document.FieldGone, Value: bson.D{{Key: "$exists", Value: false}}}

// Read implements eventlog.Reader.
func (l *Log) Read(ctx context.Context, name string, p int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, _, err := l.partition(ctx, name, p)
	if err != nil {
		return nil, err
	}
	floor, err := l.floor(ctx, t, p)
	if err != nil {
		return nil, unavailable(ctx, "read topic "+name, err)
	}
	if from = max(from, floor); from > math.MaxInt64 {
		return nil, nil
	}
	filter := inPartition(name, p, bson.E{Key: "seq", Value: bson.D{{Key: "$gte", Value: int64(from)}}}, readable)
	return l.page(ctx, t, filter, bson.D{{Key: "seq", Value: 1}}, b)
}

// page reads the first events of a query, up to the bounds.
func (l *Log) page(ctx context.Context, t *topic, filter any, order bson.D, b eventlog.Bounds) ([]*eventlog.Record, error) {
	var events []*eventlog.Record
	var broken error
	err := l.persist(ctx, func() (err error) {
		events, broken, err = l.readPage(ctx, t, filter, order, b)
		return err
	})
	if err != nil {
		return nil, unavailable(ctx, "read topic "+t.Name, err)
	}
	l.health.reached()
	if broken != nil {
		return nil, fmt.Errorf("read topic %s: %w", t.Name, broken)
	}
	return events, nil
}

// readPage is one try of page. broken says that a document is no event.
func (l *Log) readPage(ctx context.Context, t *topic, filter any, order bson.D, b eventlog.Bounds) (events []*eventlog.Record, broken, _ error) {
	limit := max(b.Events, 1)
	o := options.Find().SetSort(order).SetLimit(int64(limit)).SetBatchSize(t.batchSize(limit, b.Bytes))
	cursor, err := l.concern(t.Name).events.Find(ctx, filter, o)
	if err != nil {
		return nil, nil, err
	}
	defer cursor.Close(ctx)
	bytes := 0
	for len(events) < limit && (len(events) == 0 || b.Bytes <= 0 || bytes < b.Bytes) && cursor.Next(ctx) {
		s, err := document.Decode(cursor.Current)
		if err != nil {
			return nil, err, nil
		}
		events = append(events, s.Record)
		bytes += s.Record.Size()
	}
	if len(events) > 0 {
		t.eventBytes.Store(int64(bytes / len(events)))
	}
	return events, nil, cursor.Err()
}

// batchSize is how many documents to ask for at once, for a page to be one
// round trip that carries little more than the page.
func (t *topic) batchSize(limit, bytes int) int32 {
	size := t.eventBytes.Load()
	if bytes <= 0 || size == 0 {
		return int32(min(limit, maxBatch))
	}
	return int32(min(int64(limit), int64(bytes)/size+1, maxBatch))
}

// maxBatch bounds the documents that one answer of the server has. It has at
// most 16 MB in any case.
const maxBatch = 10_000

// Lookup implements eventlog.Reader.
func (l *Log) Lookup(ctx context.Context, name, id string) (*eventlog.Record, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := l.topic(ctx, name); err != nil {
		return nil, err
	}
	// On some servers any filter but this one reads the whole collection.
	filter := bson.D{{Key: "_id", Value: document.ID(name, id)}}
	return l.findEvent(ctx, name, fmt.Sprintf("event %q of topic %q", id, name), filter, options.FindOne())
}

// LatestByKey implements eventlog.Reader.
func (l *Log) LatestByKey(ctx context.Context, name, key string) (*eventlog.Record, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := l.topic(ctx, name); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("key %q of topic %q", key, name)
	if key == "" { // is no key
		return nil, fmt.Errorf("%s: %w", what, eventlog.ErrNotFound)
	}
	filter := bson.D{{Key: "topic", Value: name}, {Key: "key", Value: key}, readable}
	o := options.FindOne().SetSort(bson.D{{Key: "seq", Value: -1}})
	return l.findEvent(ctx, name, what, filter, o)
}

// findEvent reads one event; what names it in errors.
func (l *Log) findEvent(ctx context.Context, topic, what string, filter bson.D, o *options.FindOneOptionsBuilder) (*eventlog.Record, error) {
	events := l.concern(topic).events
	var raw bson.Raw
	err := l.persist(ctx, func() (err error) {
		raw, err = events.FindOne(ctx, filter, o).Raw()
		return err
	})
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return nil, unavailable(ctx, "look up "+what, err)
	}
	l.health.reached()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, eventlog.ErrNotFound)
	}
	s, err := document.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", what, err)
	}
	if s.Gone {
		return nil, fmt.Errorf("%s: %w", what, eventlog.ErrNotFound)
	}
	return s.Record, nil
}
