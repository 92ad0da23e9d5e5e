package mongolog

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// An event's document is live until retention or compaction removes the event. Then it is a stub
// that remembers the id and the seq. The stub is deleted when both of these times are over:
//
//   - the topic's deduplication window, which counts from acceptance;
//   - Options.SeqTaken, which counts from the moment it became a stub. Until then a request that is
//     executed late collides with the document at its seq. The time of acceptance does not matter
//     here: the event may have been on its way into the log for hours.
//
// A TTL index deletes stubs by their expireAt. Nothing above the watermark is removed: readers expect events in a gap there.
//
// Every step names seqs, and each seq is given out once. So steps may be repeated, and several
// sidecars may make them at the same time.

// fieldGoneAt is when the document became a stub, in milliseconds since the epoch.
const fieldGoneAt = "gone_at"

// stubDelay is the precision of expireAt: one statement makes the stubs whose times are this close.
// A TTL index runs no more often either.
const stubDelay = time.Minute

// stubless are the fields that a stub lacks.
var stubless = func() (fields bson.D) {
	for _, name := range []string{
		document.FieldKey, document.FieldSID, document.FieldTTL, document.FieldTags, document.FieldCausedBy,
		document.FieldHeaders, document.FieldHeadersList,
		document.FieldPayload, document.FieldPayloadJSON, document.FieldPayloadBytes,
	} {
		fields = append(fields, bson.E{Key: name, Value: ""})
	}
	return fields
}()

// stubs are the documents that are not live.
var stubs = bson.E{Key: document.FieldGone, Value: true}

// entry has the fields of an event's document that sweeps need.
type entry struct {
	Partition int    `bson:"partition"`
	Seq       int64  `bson:"seq"`
	Accepted  int64  `bson:"accepted"`
	Key       string `bson:"key"`
	Gone      bool   `bson:"gone"`
	GoneAt    int64  `bson:"gone_at"`
	// ExpireAt is set by migrations only; the zero time means never.
	ExpireAt time.Time `bson:"expireAt"`
}

// entryFields is the projection for entry.
var entryFields = bson.D{{Key: "_id", Value: 0},
	{Key: document.FieldPartition, Value: 1}, {Key: document.FieldSeq, Value: 1}, {Key: document.FieldAccepted, Value: 1},
	{Key: document.FieldKey, Value: 1}, {Key: document.FieldGone, Value: 1}, {Key: fieldGoneAt, Value: 1}}

// inPartition is a filter on a partition's documents.
func inPartition(topic string, p int, more ...bson.E) bson.D {
	return append(bson.D{{Key: document.FieldTopic, Value: topic}, {Key: document.FieldPartition, Value: p}}, more...)
}

// between is the condition on seqs from first to last.
func between(first, last int64) bson.E {
	return bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: first}, {Key: "$lte", Value: last}}}
}

// among is the condition on listed seqs, ascending.
func among(seqs []int64) bson.E {
	first, last := seqs[0], seqs[len(seqs)-1]
	if last-first == int64(len(seqs))-1 {
		return between(first, last)
	}
	return bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$in", Value: seqs}}}
}

func seqsOf(entries []entry) []int64 {
	seqs := make([]int64, len(entries))
	for i := range entries {
		seqs[i] = entries[i].Seq
	}
	return seqs
}

// remembering is how long stubs stay, by the policy in force.
type remembering struct {
	windowMS int64 // 0: for ever
	now      int64 // the time to compare the policy's times with
}

// over reports whether the window of an event that was accepted at that time has ended.
func (r remembering) over(accepted int64) bool {
	return r.windowMS > 0 && accepted <= r.now-r.windowMS
}

// expireAt is when the server may delete a stub, by the server's own clock: now plus the rest of
// the window, and never before SeqTaken. The zero time means never.
func (r remembering) expireAt(accepted int64, now time.Time, seqTaken time.Duration) time.Time {
	if r.windowMS <= 0 {
		return time.Time{}
	}
	const farAway = int64(100 * 365 * 24 * time.Hour / time.Millisecond) // the range of dates ends
	left := min(max(accepted+min(r.windowMS, farAway)-r.now, seqTaken.Milliseconds()), farAway)
	return now.Add(time.Duration(left) * time.Millisecond).Truncate(stubDelay).Add(stubDelay)
}

// makeStubs turns events of a partition into stubs, in seq order, and also removes these fields.
func (l *Log) makeStubs(ctx context.Context, t *topic, p int, victims []entry, r remembering, also ...bson.E) error {
	now, err := l.serverTime(ctx)
	if err != nil {
		return err
	}
	expireAt := func(e entry) time.Time { return r.expireAt(e.Accepted, now, l.opts.SeqTaken) }
	var models []mongo.WriteModel
	for len(victims) > 0 {
		n, at := 1, expireAt(victims[0])
		for n < len(victims) && expireAt(victims[n]).Equal(at) {
			n++
		}
		models = append(models, mongo.NewUpdateManyModel().
			SetFilter(inPartition(t.Name, p, among(seqsOf(victims[:n])), live)).SetUpdate(stubUpdate(now, at, also)))
		victims = victims[n:]
	}
	return writeInOrder(ctx, l, l.majority(eventsName), models)
}

// writeInOrder makes repeatable writes, one after the other.
func writeInOrder(ctx context.Context, l *Log, c *mongo.Collection, models []mongo.WriteModel) error {
	return l.persist(ctx, func() error {
		_, err := c.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
		return err
	})
}

func stubUpdate(now, expireAt time.Time, also []bson.E) bson.D {
	set := bson.D{{Key: document.FieldGone, Value: true}, {Key: fieldGoneAt, Value: now.UnixMilli()}}
	if !expireAt.IsZero() {
		set = append(set, bson.E{Key: document.FieldExpireAt, Value: expireAt})
	}
	return bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: append(slices.Clip(stubless), also...)}}
}
