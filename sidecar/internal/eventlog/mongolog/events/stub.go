package events

import (
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// An event's document is live until retention or compaction removes the event. Then it is a stub
// that remembers the id and the seq. The stub is deleted when both of these times are over:
//
//   - the topic's deduplication window, which counts from acceptance;
//   - Config.SeqTaken, which counts from the moment it became a stub. Until then a request that is
//     executed late collides with the document at its seq. The time of acceptance does not matter
//     here: the event may have been on its way into the log for hours.
//
// A TTL index deletes stubs by their expireAt. Nothing above the watermark is removed: readers
// expect events in a gap there.
//
// Every step names seqs, and each seq is given out once. So steps may be repeated, and several
// sidecars may make them at the same time.

// Batch bounds the documents that one step of a removal reads and changes.
const Batch = 1000

// FieldGoneAt is when the document became a stub, in milliseconds since the epoch.
const FieldGoneAt = "gone_at"

// StubDelay is the precision of expireAt: one statement makes the stubs whose times are this close.
// A TTL index runs no more often either.
const StubDelay = time.Minute

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

// Fields to remove from documents.
var (
	// ContentHash is the field by which a repeated publish is recognized.
	ContentHash = bson.E{Key: document.FieldHash, Value: ""}
	// OnlyScheduled are the fields that only a scheduled event has.
	OnlyScheduled = bson.D{
		{Key: document.FieldDeliverAt, Value: ""}, {Key: document.FieldDueSlot, Value: ""}, {Key: document.FieldGeneration, Value: ""},
		{Key: document.FieldBytes, Value: ""},
	}
)

// Entry has the fields of an event's document that removals need.
type Entry struct {
	Partition int    `bson:"partition"`
	Seq       int64  `bson:"seq"`
	TS        int64  `bson:"ts"`
	Accepted  int64  `bson:"accepted"`
	Key       string `bson:"key"`
	Gone      bool   `bson:"gone"`
	GoneAt    int64  `bson:"gone_at"`
}

// EntryFields is the projection for Entry.
var EntryFields = bson.D{{Key: "_id", Value: 0},
	{Key: document.FieldPartition, Value: 1}, {Key: document.FieldSeq, Value: 1}, {Key: document.FieldTS, Value: 1},
	{Key: document.FieldAccepted, Value: 1},
	{Key: document.FieldKey, Value: 1}, {Key: document.FieldGone, Value: 1}, {Key: FieldGoneAt, Value: 1}}

// BySeqOf orders entries.
func BySeqOf(a, b Entry) int { return int(a.Seq - b.Seq) }

// Seqs are the entries' seqs.
func Seqs(entries []Entry) []int64 {
	seqs := make([]int64, len(entries))
	for i := range entries {
		seqs[i] = entries[i].Seq
	}
	return seqs
}

// Remembering is how long stubs stay, by the policy in force.
type Remembering struct {
	WindowMS int64 // 0: for ever
	Now      int64 // the time to compare the policy's times with
}

// Forgetful keeps stubs only because their seqs stay taken.
var Forgetful = Remembering{WindowMS: 1, Now: math.MaxInt64 / 2}

// Over reports whether the window of an event that was accepted at that time has ended.
func (r Remembering) Over(accepted int64) bool {
	return r.WindowMS > 0 && accepted <= r.Now-r.WindowMS
}

// ExpireAt is when the server may delete a stub, by the server's own clock: now plus the rest of
// the window, and never before seqTaken. The zero time means never.
func (r Remembering) ExpireAt(accepted int64, now time.Time, seqTaken time.Duration) time.Time {
	if r.WindowMS <= 0 {
		return time.Time{}
	}
	const farAway = int64(100 * 365 * 24 * time.Hour / time.Millisecond) // the range of dates ends
	left := min(max(accepted+min(r.WindowMS, farAway)-r.Now, seqTaken.Milliseconds()), farAway)
	return now.Add(time.Duration(left) * time.Millisecond).Truncate(StubDelay).Add(StubDelay)
}

// MakeStubs turns events of a partition into stubs, in seq order, and also removes these fields.
func MakeStubs(ctx context.Context, s *core.Store, topic string, p int, victims []Entry, r Remembering, also ...bson.E) error {
	now, err := s.ServerTime(ctx)
	if err != nil {
		return err
	}
	expireAt := func(e Entry) time.Time { return r.ExpireAt(e.Accepted, now, s.SeqTaken) }
	var models []mongo.WriteModel
	for len(victims) > 0 {
		n, at := 1, expireAt(victims[0])
		for n < len(victims) && expireAt(victims[n]).Equal(at) {
			n++
		}
		models = append(models, mongo.NewUpdateManyModel().
			SetFilter(InPartition(topic, p, Among(Seqs(victims[:n])), Live)).SetUpdate(stubUpdate(now, at, nil, also)))
		victims = victims[n:]
	}
	return s.WriteInOrder(ctx, core.Events, models)
}

// CancelledStub is the update that turns a scheduled event into the stub of a cancelled one, with
// this number.
func CancelledStub(ctx context.Context, s *core.Store, token int64) (bson.D, error) {
	now, err := s.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	also := append(slices.Clip(OnlyScheduled), ContentHash, bson.E{Key: document.FieldWriter, Value: ""})
	return stubUpdate(now, Forgetful.ExpireAt(0, now, s.SeqTaken), bson.D{{Key: document.FieldSeq, Value: token}}, also), nil
}

func stubUpdate(now, expireAt time.Time, set bson.D, unset []bson.E) bson.D {
	set = append(set, bson.E{Key: document.FieldGone, Value: true}, bson.E{Key: FieldGoneAt, Value: now.UnixMilli()})
	if !expireAt.IsZero() {
		set = append(set, bson.E{Key: document.FieldExpireAt, Value: expireAt})
	}
	return bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: append(slices.Clip(stubless), unset...)}}
}

// FieldVoid marks a document without an event.
const FieldVoid = "void"

// voidKept is how long a void keeps its seq taken.
const voidKept = 24 * time.Hour

// Void is the document that takes a seq without an event; now is the server's time.
func Void(topic string, p int, seq uint64, now time.Time) bson.D {
	return bson.D{
		{Key: document.FieldID, Value: bson.D{{Key: FieldVoid, Value: topic}, {Key: "partition", Value: p}, {Key: "seq", Value: int64(seq)}}},
		{Key: document.FieldTopic, Value: topic}, {Key: document.FieldPartition, Value: p}, {Key: document.FieldSeq, Value: int64(seq)},
		{Key: document.FieldGone, Value: true}, {Key: FieldVoid, Value: true},
		{Key: FieldGoneAt, Value: now.UnixMilli()}, {Key: document.FieldExpireAt, Value: now.Add(voidKept)},
	}
}

// FindLive returns the first live events of a partition that fulfil a condition on seqs.
func FindLive(ctx context.Context, s *core.Store, topic string, p, limit int, seqs bson.E) ([]Entry, error) {
	o := options.Find().SetHint(s.Hint(ByLiveSeq)).SetSort(BySeq).SetLimit(int64(limit)).SetProjection(EntryFields)
	return core.FindAll[Entry](ctx, s, core.Events, InPartition(topic, p, seqs, Live), o)
}
