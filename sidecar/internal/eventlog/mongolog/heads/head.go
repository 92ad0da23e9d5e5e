// Package heads is the order of a topic's events: the head, which gives out seqs and says up to
// which seq nothing is missing, and the holes among the seqs that were given out.
package heads

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// The head of a topic is a document among its events, which says by partition
//
//	head      the highest seq that was given out
//	settled   the watermark: every seq up to it is stored, void or removed
//	first     no live event is below it
//	removed   retention or the topic's deletion removes the events up to it; it rises before they go
//	generation  see package topics
//	timed     the blocks up to it are in package times
//	patience  in milliseconds: how long a hole has to stand before readers void it, where that is more than leastPatience
//	min_ts    about the lowest ts of its events
//
// and by, the number of the last reservation; lone, the claim of a lone writer (lone.go); count and bytes, the
// number and the size of the events that seqs were given to in this generation, as far as its writers have told;
// and max_ts, their highest ts. From min_ts and these three a list of topics tells what large ones hold: they are
// close, not exact. A number that is left out is 0. head rises by reservations and $max, settled, first, removed,
// timed and patience by $max; a sidecar that raises settled lowers patience by an update that names the value that
// it had. The document is neither upserted nor deleted, so that no seq is given out twice. Its place in the index
// of seqs, before all partitions, lets a reader read it and the events in one scan, in this order.
const (
	FieldGiven     = "head"
	FieldWatermark = "settled"
	FieldFirst     = "first"
	FieldRemoved   = "removed"
	FieldTimed     = "timed"
	FieldPatience  = "patience"
	FieldBy        = "by"
	FieldMinTS     = "min_ts"
	FieldMaxTS     = "max_ts"
	FieldCount     = "count"
	FieldBytes     = "bytes"
	FieldLone      = "lone"

	// Partition and Seq are the head's place in the index of seqs.
	Partition = -1
	Seq       = math.MaxInt64
)

// Head is a head as it was read.
type Head bson.Raw

func (h Head) number(field string, p int) uint64 {
	n, _ := bson.Raw(h).Lookup(field, strconv.Itoa(p)).AsInt64OK()
	return uint64(max(n, 0))
}

// Given is the highest seq of a partition that was given out, except to a lone writer.
func (h Head) Given(p int) uint64 { return h.number(FieldGiven, p) }

// Watermark is a seq of a partition up to which every seq is stored, void or removed.
func (h Head) Watermark(p int) uint64 { return h.number(FieldWatermark, p) }

// First is a seq of a partition below which there is no live event.
func (h Head) First(p int) uint64 { return max(h.number(FieldFirst, p), 1) }

// Removed is the highest seq of a partition whose event retention or the topic's deletion removes:
// where First is not above it yet, that is under way.
func (h Head) Removed(p int) uint64 { return h.number(FieldRemoved, p) }

// Timed is a seq of a partition up to which blocks are in package times.
func (h Head) Timed(p int) uint64 { return h.number(FieldTimed, p) }

// leastPatience is how long a hole must exist before readers void it.
const leastPatience = 5 * time.Second

// Patience is how long a hole has to stand.
func (h Head) Patience(p int) time.Duration {
	return max(time.Duration(h.number(FieldPatience, p))*time.Millisecond, leastPatience)
}

// Generation is the topic's.
func (h Head) Generation() int64 { return h.total(document.FieldGeneration) }

// total is a number of the whole topic.
func (h Head) total(field string) int64 {
	n, _ := bson.Raw(h).Lookup(field).AsInt64OK()
	return n
}

// EventBytes is the average size of the topic's events; known is false if no seq was reserved since
// the head was made.
func (h Head) EventBytes() (bytes float64, known bool) {
	n := h.total(FieldCount)
	return float64(h.total(FieldBytes)) / float64(max(n, 1)), n > 0
}

// TSBounds are about the lowest and the highest ts of the topic's events.
func (h Head) TSBounds() (first, last int64) {
	last = h.total(FieldMaxTS)
	first = last
	byPartition, _ := bson.Raw(h).Lookup(FieldMinTS).DocumentOK()
	elements, _ := byPartition.Elements()
	for _, e := range elements {
		if ts, ok := e.Value().AsInt64OK(); ok {
			first = min(first, ts)
		}
	}
	return first, last
}

// Path is the path of a number in a head, for one partition.
func Path(field string, p int) string { return field + "." + strconv.Itoa(p) }

// ID is the _id of a topic's head. The _id of an event is a string.
func ID(topic string) bson.D { return bson.D{{Key: "head", Value: topic}} }

// Of selects a topic's head. It has the fields that a shard key may need.
func Of(topic string) bson.D {
	return bson.D{{Key: "_id", Value: ID(topic)}, {Key: document.FieldTopic, Value: topic}}
}

// Heads reads and raises the heads of a store's topics.
type Heads struct {
	store   *core.Store
	catalog *topics.Catalog
}

// New returns the heads of a store.
func New(s *core.Store, c *topics.Catalog) *Heads { return &Heads{s, c} }

// Read reads a topic's head, and makes it if there is none. A deleted topic is an error.
func (h *Heads) Read(ctx context.Context, t *topics.Topic) (Head, error) {
	for {
		head, err := h.Find(ctx, t)
		if err != nil {
			return nil, err
		}
		if same, err := h.Meet(ctx, t, head); same || err != nil {
			return head, err
		}
	}
}

// Find is Read for any generation of the topic.
func (h *Heads) Find(ctx context.Context, t *topics.Topic) (Head, error) {
	var wait core.Backoff
	for {
		var raw bson.Raw
		err := h.store.Persist(ctx, func() (err error) {
			raw, err = h.store.Majority(core.Events).FindOne(ctx, Of(t.Name)).Raw()
			return err
		})
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return Head(raw), err
		}
		if err := h.Make(ctx, t); err != nil {
			return nil, err
		}
		// Another sidecar's head may not be on a majority yet.
		if err := wait.Sleep(ctx, h.store.Clock, core.ShortWait); err != nil {
			return nil, err
		}
	}
}

// Make inserts a topic's head if there is none. If somebody has deleted the head, new seqs are above
// those of the stored events.
func (h *Heads) Make(ctx context.Context, t *topics.Topic) error {
	return h.store.Causally(ctx, func(ctx context.Context) error {
		given, err := h.highestStored(ctx, t)
		if err != nil {
			return err
		}
		doc := bson.D{
			{Key: "_id", Value: ID(t.Name)}, {Key: document.FieldTopic, Value: t.Name},
			{Key: document.FieldPartition, Value: Partition}, {Key: document.FieldSeq, Value: int64(Seq)},
			{Key: document.FieldGeneration, Value: t.Generation()},
			{Key: FieldGiven, Value: given}, {Key: FieldWatermark, Value: given},
			{Key: FieldFirst, Value: bson.D{}}, {Key: FieldRemoved, Value: bson.D{}}, {Key: FieldPatience, Value: bson.D{}},
		}
		return h.store.Persist(ctx, func() error {
			_, err := h.store.Majority(core.Events).InsertOne(ctx, doc)
			if mongo.IsDuplicateKeyError(err) {
				return nil
			}
			return err
		})
	})
}

// highestStored is, by partition, the highest seq that a document has, if there is any.
func (h *Heads) highestStored(ctx context.Context, t *topics.Topic) (bson.D, error) {
	highest := bson.D{}
	some, err := events.FindSeq(ctx, h.store, bson.D{{Key: document.FieldTopic, Value: t.Name}}, events.BySeq, 0)
	if err != nil || some == 0 {
		return highest, err
	}
	for p := range t.Parts { // one after the other, since they share a session
		seq, err := events.FindSeq(ctx, h.store, events.InPartition(t.Name, p), events.BySeq, -1)
		if err != nil {
			return nil, err
		}
		if seq > 0 {
			highest = append(highest, bson.E{Key: strconv.Itoa(p), Value: int64(seq)})
		}
	}
	return highest, nil
}

// Meet compares a head's generation with the topic's as this process knows it. If the head's is
// later, Meet reads the topic's document; if it is earlier, Meet raises it. Then the caller reads
// the head again. A deleted topic is an error.
func (h *Heads) Meet(ctx context.Context, t *topics.Topic, head Head) (same bool, err error) {
	switch known := t.Generation(); {
	case head.Generation() < known:
		err = h.RaiseGeneration(ctx, t, known)
	case head.Generation() > known:
		_, err = h.catalog.Stored(ctx, t.Name)
		if err == nil && t.Generation() < head.Generation() {
			err = core.ErrBehind // the topic's document was written before the head
		}
	default:
		same = true
	}
	if err == nil && !t.Exists() {
		err = topics.NotThere(t.Name)
	}
	return same, err
}

// totals are the fields about the events of one generation.
var totals = bson.D{{Key: FieldMinTS, Value: ""}, {Key: FieldMaxTS, Value: ""}, {Key: FieldCount, Value: ""}, {Key: FieldBytes, Value: ""}}

// RaiseGeneration raises the head to that generation, unless the head has a later one.
func (h *Heads) RaiseGeneration(ctx context.Context, t *topics.Topic, to int64) error {
	next := bson.D{{Key: "$set", Value: bson.D{{Key: document.FieldGeneration, Value: to}}}, {Key: "$unset", Value: totals}}
	return h.Update(ctx, t, next,
		bson.E{Key: document.FieldGeneration, Value: bson.D{{Key: "$lt", Value: to}}})
}

// RaiseGiven raises the head to the highest stored seq, so that no seq up to it is given out.
func (h *Heads) RaiseGiven(ctx context.Context, t *topics.Topic, p int) error {
	highest, err := events.FindSeq(ctx, h.store, events.InPartition(t.Name, p), events.BySeq, -1)
	if err != nil {
		return err
	}
	return h.Update(ctx, t, bson.D{{Key: "$max", Value: bson.D{{Key: Path(FieldGiven, p), Value: int64(highest)}}}})
}

// Update makes a repeatable update of the head, if it is as expected.
func (h *Heads) Update(ctx context.Context, t *topics.Topic, update bson.D, expected ...bson.E) error {
	return h.store.Persist(ctx, func() error {
		_, err := h.store.Majority(core.Events).UpdateOne(ctx, append(Of(t.Name), expected...), update)
		return err
	})
}
