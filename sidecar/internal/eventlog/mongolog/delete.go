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

// A topic's generation is even while it exists and odd while it is deleted. It is in the topic's
// document, which is written first, and in the head. Appends depend on the head. It only rises, and
// neither document is ever deleted.
//
// Deleting has these steps, in this order. Any sidecar may repeat each of them:
//
//  1. The topic's document gets the next, odd generation.
//  2. So does the head. A reservation names its generation, so from here on no seq is given out:
//     the head's numbers are final.
//  3. Voids take the empty seqs up to the head. Inserts that are still on their way collide with
//     them, as with the voids of a hole.
//  4. Live events up to the head become stubs. Their seqs stay taken, as those of other stubs do.
//  5. The head's first is set above them. Heads are never lowered, so no reader confuses a later
//     event with one of these.
//  6. The topic's document gets the mark "emptied".
//
// Creating the topic again gives it the next, even generation. The _id of an event or a mark begins
// with the generation, so ids are free although stubs have them. Sidecars that know an earlier
// generation notice the later one in the head: when they reserve, when they read, and when they
// look for an id that they do not find.

// errAnotherGeneration says that the append is for a generation that has ended.
var errAnotherGeneration = errors.New("the topic was deleted meanwhile")

func (h topicHead) generation() int64 {
	n, _ := bson.Raw(h).Lookup(fieldGeneration).AsInt64OK()
	return n
}

// meet compares a head's generation with the topic's as this log knows it. If the head's is later,
// the log reads the topic's document; if it is earlier, the log raises it. Then the caller reads
// the head again. A deleted topic is an error.
func (l *Log) meet(ctx context.Context, t *topic, head topicHead) (same bool, err error) {
	switch known := t.generation.Load(); {
	case head.generation() < known:
		err = l.raiseGeneration(ctx, t, known)
	case head.generation() > known:
		_, err = l.storedTopic(ctx, t.Name)
		if err == nil && t.generation.Load() < head.generation() {
			err = errBehind // the topic's document was written before the head
		}
	default:
		same = true
	}
	if err == nil && !t.exists() {
		err = notThere(t.Name)
	}
	return same, err
}

// raiseGeneration raises the head to that generation, unless the head has a later one.
func (l *Log) raiseGeneration(ctx context.Context, t *topic, to int64) error {
	return l.updateHead(ctx, t, bson.D{{Key: "$set", Value: bson.D{{Key: fieldGeneration, Value: to}}}},
		bson.E{Key: fieldGeneration, Value: bson.D{{Key: "$lt", Value: to}}})
}

// noHead finds out why there is no head of the batch's generation.
func (b *batch) noHead(ctx context.Context) error {
	_, err := b.log.readHead(ctx, b.topic)
	if err == nil && b.topic.generation.Load() == b.generation {
		return nil // there is one now
	}
	if err == nil || errors.Is(err, eventlog.ErrNotFound) {
		return errAnotherGeneration
	}
	return err
}

// ofGeneration selects a topic's document while it has that generation.
func ofGeneration(name string, generation int64) bson.D {
	return append(byID(name), bson.E{Key: fieldGeneration, Value: generation})
}

// storedDocument is a topic, also a deleted one, and its document.
func (l *Log) storedDocument(ctx context.Context, name string) (t *topic, d topicDocument, err error) {
	raw, err := l.topicRaw(ctx, name)
	if err != nil {
		return nil, d, err
	}
	return l.catalog.remember(raw)
}

// makeAgain creates a deleted topic again; made is false if the topic is not deleted.
func (l *Log) makeAgain(ctx context.Context, name string) (made bool, err error) {
	_, d, err := l.storedDocument(ctx, name)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return false, nil
	case err != nil || d.Generation%2 == 0:
		return false, err
	case !d.Emptied:
		return false, fmt.Errorf("topic %q is %w: delete it again to finish the deletion", name, eventlog.ErrDeleting)
	}
	_, err = l.majority(topicsName).UpdateOne(ctx, ofGeneration(name, d.Generation), bson.D{
		{Key: "$set", Value: bson.D{{Key: fieldGeneration, Value: d.Generation + 1}, {Key: "by", Value: eventlog.Maker(ctx)}}}, {Key: "$unset", Value: bson.D{{Key: "emptied", Value: ""}}}})
	return err == nil, err
}

// DeleteTopic implements eventlog.Deleter.
func (l *Log) DeleteTopic(ctx context.Context, name string) error {
	op := "delete topic " + name
	var t *topic
	var d topicDocument
	err := l.within(ctx, op, func(ctx context.Context) (err error) {
		if t, d, err = l.storedDocument(ctx, name); err != nil || d.Generation%2 == 1 {
			return err
		}
		_, err = l.majority(topicsName).UpdateOne(ctx, ofGeneration(name, d.Generation),
			bson.D{{Key: "$set", Value: bson.D{{Key: fieldGeneration, Value: d.Generation + 1}}}})
		if err == nil {
			t, d, err = l.storedDocument(ctx, name)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case d.Emptied:
		return notThere(name)
	case d.Generation%2 == 0: // made again meanwhile
		return fmt.Errorf("%s: %w", op, eventlog.ErrDeleting)
	}
	if err := l.empty(ctx, op, t, d.Generation); err != nil {
		return err
	}
	if err := l.forgetScheduled(ctx, op, name, d.Generation); err != nil {
		return err
	}
	return l.within(ctx, op, func(ctx context.Context) error {
		_, err := l.majority(topicsName).UpdateOne(ctx, ofGeneration(name, d.Generation),
			bson.D{{Key: "$set", Value: bson.D{{Key: "emptied", Value: true}}}})
		return err
	})
}

// empty removes the events of a topic that is being deleted.
func (l *Log) empty(ctx context.Context, op string, t *topic, generation int64) error {
	var head topicHead
	err := l.within(ctx, op, func(ctx context.Context) (err error) {
		if _, err = l.findHead(ctx, t); err != nil { // the head exists from here on
			return err
		}
		if err = l.raiseGeneration(ctx, t, generation); err != nil {
			return err
		}
		// If no sidecar has read the topic lately, this raises the watermark.
		if head, err = l.findHead(ctx, t); err != nil {
			return err
		}
		if _, err = l.extentsUnder(ctx, t, head); err != nil {
			return err
		}
		if err = l.raiseWatermark(ctx, t, head); err != nil {
			return err
		}
		head, err = l.findHead(ctx, t)
		return err
	})
	for p := range t.partitions {
		if err != nil {
			return err
		}
		err = l.emptyPartition(ctx, op, t, p, head)
	}
	return err
}

func (l *Log) emptyPartition(ctx context.Context, op string, t *topic, p int, head topicHead) error {
	last := head.head(p)
	if last < head.first(p) {
		return nil // the topic was empty, or was emptied before
	}
	for first := head.watermark(p) + 1; first <= last; first += maxVoids {
		err := l.within(ctx, op, func(ctx context.Context) error { return l.fill(ctx, t, p, first, min(first+maxVoids-1, last)) })
		if err != nil {
			return err
		}
	}
	for on := true; on; {
		err := l.within(ctx, op, func(ctx context.Context) error {
			page, err := findAll[entry](ctx, l, l.majority(eventsName), inPartition(t.Name, p, between(0, int64(last)), live),
				options.Find().SetHint(l.hint(byLiveSeq)).SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(sweepBatch).SetProjection(entryFields))
			if on = len(page) > 0; err != nil || !on {
				return err
			}
			return l.makeStubs(ctx, t, p, page, forgetful)
		})
		if err != nil {
			return err
		}
	}
	err := l.within(ctx, op, func(ctx context.Context) error {
		return l.updateHead(ctx, t, bson.D{{Key: "$max", Value: bson.D{
			{Key: of(fieldWatermark, p), Value: int64(last)}, {Key: of(fieldFirst, p), Value: int64(last) + 1}}}})
	})
	if err == nil {
		t.partitions[p].unswept.Store(0)
		raise(&t.partitions[p].floor, last+1)
	}
	return err
}

// forgetful keeps stubs only because their seqs stay taken.
var forgetful = remembering{windowMS: 1, now: math.MaxInt64 / 2}

// ForgetGroup implements eventlog.Deleter. A TTL index removes the last epochs once no late save of
// their owners can arrive.
func (l *Log) ForgetGroup(ctx context.Context, topic, group string) error {
	ctx, renew, end, err := l.beginSteps(ctx)
	if err != nil {
		return err
	}
	defer end()
	t, err := l.topic(ctx, topic)
	if err != nil {
		return err
	}
	err = l.causally(ctx, func(ctx context.Context) error { return l.forgetChains(ctx, topic, group) })
	for coll, prefix := range map[string]string{marksName: marksPrefix(topic, t.generation.Load(), group), redriveName: redrivePrefix(topic, group, -1)} {
		for found := 1; found > 0 && err == nil; renew() {
			found, _, err = l.deleteSome(ctx, coll, idsUnder(prefix), options.Find().SetLimit(maxMarkIDs))
		}
	}
	if err != nil && !errors.Is(err, eventlog.ErrFenced) {
		err = l.unavailable(ctx, "forget group "+group, err)
	}
	return err
}

func (l *Log) forgetChains(ctx context.Context, topic, group string) error {
	found, err := l.readChains(ctx, bson.A{bson.D{{Key: "topic", Value: topic}, {Key: "group", Value: group}}}, withoutProgress)
	if err != nil {
		return err
	}
	now, err := l.serverTime(ctx)
	if err != nil {
		return err
	}
	var updates []mongo.WriteModel
	var old chain
	for at, c := range found {
		last := c[len(c)-1]
		if !last.Deleted {
			return fmt.Errorf("group %q of topic %q, partition %d: %w", group, topic, at.Partition, eventlog.ErrFenced)
		}
		old = append(old, c[:len(c)-1]...)
		updates = append(updates, mongo.NewUpdateOneModel().SetFilter(append(byID(last.ID), bson.E{Key: "claim", Value: last.Claim})).
			SetUpdate(bson.D{{Key: "$max", Value: bson.D{{Key: document.FieldExpireAt, Value: now.Add(l.opts.SeqTaken)}}}}))
	}
	l.forgetEpochs(ctx, old)
	if len(updates) == 0 {
		return nil
	}
	_, err = l.bulkWrite(ctx, l.majority(epochsName), updates)
	return err
}

// Erase implements eventlog.Deleter: events become stubs, without a hash.
func (l *Log) Erase(ctx context.Context, name string, p int, seqs []uint64, r eventlog.Retention, now int64) (removed int, err error) {
	t, part, err := l.knownPartition(ctx, name, p)
	if err != nil {
		return 0, err
	}
	wanted := make(bson.A, len(seqs))
	for i, seq := range seqs {
		wanted[i] = int64(seq)
	}
	err = l.within(ctx, "erase events of topic "+name, func(ctx context.Context) error {
		in := bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$in", Value: wanted}}}
		victims, err := findAll[entry](ctx, l, l.majority(eventsName), inPartition(name, p, in, live),
			options.Find().SetHint(l.hint(byLiveSeq)).SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetProjection(entryFields))
		if err != nil || len(victims) == 0 {
			return err
		}
		removed = len(victims)
		part.unswept.Store(0)
		return l.makeStubs(ctx, t, p, victims, remembering{windowMS: r.DedupeWindowMS, now: now}, contentHash)
	})
	return removed, err
}

// contentHash is the field by which a repeated publish is recognized.
var contentHash = bson.E{Key: document.FieldHash, Value: ""}
