package mongolog

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// The head of a topic is a document among its events, which says by partition
//
//	head      the highest seq that was given out
//	settled   the watermark: every seq up to it is stored, void or removed
//	first     no live event is below it
//	generation  see delete.go
//	patience  in milliseconds: how long a hole has to stand before readers void it, where that is more than leastPatience
//
// A number that is left out is 0. head rises by $inc and $max, settled, first and patience by $max;
// a sidecar that raises settled lowers patience by an update that names the value that it had. The
// document is neither upserted nor deleted, so that no seq is given out twice. Its place in the
// index of seqs, before all partitions, lets a reader read it and the events in one scan, in this
// order.
const (
	fieldHead      = "head"
	fieldWatermark = "settled"
	fieldFirst     = "first"
	fieldPatience  = "patience"

	fieldGeneration = "generation"

	headPartition = -1
	headSeq       = math.MaxInt64
)

// topicHead is a head as the log read it.
type topicHead bson.Raw

func (h topicHead) number(field string, p int) uint64 {
	n, _ := bson.Raw(h).Lookup(field, strconv.Itoa(p)).AsInt64OK()
	return uint64(max(n, 0))
}

func (h topicHead) head(p int) uint64      { return h.number(fieldHead, p) }
func (h topicHead) watermark(p int) uint64 { return h.number(fieldWatermark, p) }
func (h topicHead) first(p int) uint64     { return max(h.number(fieldFirst, p), 1) }

// patience is how long a hole has to stand.
func (h topicHead) patience(p int) time.Duration {
	return max(time.Duration(h.number(fieldPatience, p))*time.Millisecond, leastPatience)
}

// of is the path of a number in a head, for one partition.
func of(field string, p int) string { return field + "." + strconv.Itoa(p) }

// headID is the _id of a topic's head. The _id of an event is a string.
func headID(topic string) bson.D { return bson.D{{Key: "head", Value: topic}} }

// byHead selects a topic's head. It has the fields that a shard key may need.
func byHead(topic string) bson.D {
	return bson.D{{Key: "_id", Value: headID(topic)}, {Key: document.FieldTopic, Value: topic}}
}

// readHead reads a topic's head, and makes it if there is none. A deleted topic is an error.
func (l *Log) readHead(ctx context.Context, t *topic) (topicHead, error) {
	for {
		head, err := l.findHead(ctx, t)
		if err != nil {
			return nil, err
		}
		if same, err := l.meet(ctx, t, head); same || err != nil {
			return head, err
		}
	}
}

// findHead is readHead for any generation of the topic.
func (l *Log) findHead(ctx context.Context, t *topic) (topicHead, error) {
	var wait backoff
	for {
		var raw bson.Raw
		err := l.persist(ctx, func() (err error) {
			raw, err = l.majority(eventsName).FindOne(ctx, byHead(t.Name)).Raw()
			return err
		})
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return topicHead(raw), err
		}
		if err := l.makeHead(ctx, t); err != nil {
			return nil, err
		}
		// Another sidecar's head may not be on a majority yet.
		if err := wait.sleep(ctx, l.opts.Clock, shortWait); err != nil {
			return nil, err
		}
	}
}

// makeHead inserts a topic's head if there is none. If somebody has deleted the head, new seqs are
// above those of the stored events.
func (l *Log) makeHead(ctx context.Context, t *topic) error {
	return l.causally(ctx, func(ctx context.Context) error {
		highest, err := l.highestStored(ctx, t)
		if err != nil {
			return err
		}
		given := bson.D{}
		for p, seq := range highest {
			if seq > 0 {
				given = append(given, bson.E{Key: strconv.Itoa(p), Value: seq})
			}
		}
		doc := bson.D{
			{Key: "_id", Value: headID(t.Name)}, {Key: document.FieldTopic, Value: t.Name},
			{Key: document.FieldPartition, Value: headPartition}, {Key: document.FieldSeq, Value: int64(headSeq)},
			{Key: fieldGeneration, Value: t.generation.Load()},
			{Key: fieldHead, Value: given}, {Key: fieldWatermark, Value: given},
			{Key: fieldFirst, Value: bson.D{}}, {Key: fieldPatience, Value: bson.D{}},
		}
		return l.persist(ctx, func() error {
			_, err := l.majority(eventsName).InsertOne(ctx, doc)
			if mongo.IsDuplicateKeyError(err) {
				return nil
			}
			return err
		})
	})
}

// highestStored is, by partition, the highest seq that a document has; 0 if there is none.
func (l *Log) highestStored(ctx context.Context, t *topic) ([]int64, error) {
	highest := make([]int64, len(t.partitions))
	if some, err := l.findSeq(ctx, bson.D{{Key: document.FieldTopic, Value: t.Name}}, bySeq, 0); err != nil {
		return nil, err
	} else if some > 0 {
		for p := range highest { // one after the other, since they share a session
			seq, err := l.findSeq(ctx, inPartition(t.Name, p), bySeq, -1)
			if err != nil {
				return nil, err
			}
			highest[p] = int64(seq)
		}
	}
	return highest, nil
}

// findSeq is the lowest (order 1), highest (-1) or some (0) seq that the filter selects, or 0.
func (l *Log) findSeq(ctx context.Context, filter, index bson.D, order int) (uint64, error) {
	o := options.Find().SetHint(l.hint(index)).SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "seq", Value: 1}})
	if order != 0 {
		o.SetSort(bson.D{{Key: "seq", Value: order}})
	}
	found, err := findAll[struct {
		Seq int64 `bson:"seq"`
	}](ctx, l, l.majority(eventsName), filter, o)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return uint64(found[0].Seq), nil
}

// moment is a point in time by both clocks: the monotonic one stands still while a machine sleeps,
// and the other may be set back.
type moment struct{ mono, wall time.Time }

func now(c clock.Clock) moment {
	t := c.Now()
	return moment{mono: t, wall: t.Round(0)}
}

// age is the time since the moment, by the clock that shows the longer time.
func (m moment) age(c clock.Clock) time.Duration {
	t := c.Now()
	return max(t.Sub(m.mono), t.Round(0).Sub(m.wall))
}
