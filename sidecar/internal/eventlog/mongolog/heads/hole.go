package heads

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/times"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// A hole is a range of seqs that were given out and have no document: an append is on its way, or
// will never arrive. Readers wait as long as it may be on its way. Then they insert a void at each
// seq. The unique index makes voids refuse late inserts. Readers continue once they have read the
// voids back. Voids and stubs keep a seq taken for a day, so that late inserts collide with them.
const (
	// mostPatience bounds what a live writer whose seqs were voided asks for.
	mostPatience = time.Minute
	// MaxVoids bounds the voids of one insert.
	MaxVoids = 1000
	// watermarkEvery is how often a process raises the watermark of a topic.
	watermarkEvery = time.Second
	// scanned bounds the documents of one look for holes.
	scanned = 10_000
)

// Stood notes that the seqs from first to last are missing. It returns up to which of them to void,
// since they have been missing for longer than the head's patience; 0: none.
func (h *Heads) Stood(t *topics.Topic, p int, head Head, first, last uint64) uint64 {
	return min(t.Parts[p].Holes.Stood(h.store.Clock, first, last, head.Given(p), head.Patience(p)), first+MaxVoids-1)
}

// Fill voids the seqs from first to last. An event that was stored meanwhile stays as it is.
func (h *Heads) Fill(ctx context.Context, t *topics.Topic, p int, first, last uint64) error {
	now, err := h.store.ServerTime(ctx)
	if err != nil {
		return err
	}
	var docs []any
	for seq := first; seq <= last; seq++ {
		docs = append(docs, events.Void(t.Name, p, seq, now))
	}
	h.store.Logger.Info("voided seqs that were reserved and stayed empty", "topic", t.Name, "partition", p, "first", first, "last", last)
	_, err = h.store.InsertNew(ctx, core.Events, docs)
	return err
}

// MorePatience is the wait that a live writer asks of readers after they voided its seqs.
func (h *Heads) MorePatience(ctx context.Context, t *topics.Topic, p int) (time.Duration, error) {
	head, err := h.Read(ctx, t)
	if err != nil {
		return 0, err
	}
	return min(2*head.Patience(p), mostPatience), nil
}

// contiguous is the highest seq up to which nothing is missing. The caller knows that nothing is
// missing up to end. contiguous voids holes that are old enough, once each. Above the head there are
// none.
func (h *Heads) contiguous(ctx context.Context, t *topics.Topic, p int, head Head, end uint64) (uint64, error) {
	o := options.Find().SetHint(events.BySeq).SetLimit(scanned).SetSort(events.BySeq).
		SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: document.FieldSeq, Value: 1}, {Key: events.FieldVoid, Value: 1}})
	var voided uint64 // the highest seq that this call has voided
	for highest := head.End(p); end < highest; {
		docs, err := core.FindAll[struct {
			Seq  int64 `bson:"seq"`
			Void bool  `bson:"void"`
		}](ctx, h.store, core.Events, events.InPartition(t.Name, p, events.Between(int64(end)+1, int64(highest))), o)
		if err != nil {
			return 0, err
		}
		missing, first, last := highest, end+1, uint64(0) // missing is the last missing seq
		for _, d := range docs {
			if uint64(d.Seq) != end+1 {
				missing = uint64(d.Seq) - 1
				break
			}
			if end++; !d.Void {
				last = end
			}
		}
		t.Parts[p].Newest.Saw(first, end, last)
		if end == highest || len(docs) == scanned && missing == highest {
			continue
		}
		if end >= head.Given(p) {
			break
		}
		upTo := h.Stood(t, p, head, end+1, missing)
		if upTo <= voided {
			break
		}
		if err := h.Fill(ctx, t, p, end+1, upTo); err != nil {
			return 0, err
		}
		voided = upTo
	}
	return end, nil
}

// RaiseWatermarkSoon raises the watermark to the seqs that this process has read up to, at most once
// in watermarkEvery.
func (h *Heads) RaiseWatermarkSoon(t *topics.Topic, head Head) {
	due := t.WatermarkDue.Load()
	now := h.store.Clock.Now().UnixNano()
	if now < due || !t.WatermarkDue.CompareAndSwap(due, now+int64(watermarkEvery)) {
		return
	}
	h.store.Spawn(func() {
		err := h.store.Within(h.store.Lasting(), "raise the watermark", func(ctx context.Context) error { return h.RaiseWatermark(ctx, t, head) })
		if err != nil {
			h.store.Logger.Debug("could not raise the watermark of a topic", "topic", t.Name, "error", err)
		}
	})
}

// RaiseWatermark raises the watermark of each partition to the seq that this process has seen, and
// lowers the patience of those partitions. Then it adds the blocks below the watermarks to package
// times.
func (h *Heads) RaiseWatermark(ctx context.Context, t *topics.Topic, head Head) error {
	var raise bson.D
	for p := range t.Parts {
		seen := t.Parts[p].Seen.Load()
		if seen <= head.Watermark(p) {
			continue
		}
		raise = append(raise, bson.E{Key: Path(FieldWatermark, p), Value: int64(seen)}, bson.E{Key: Path(FieldGiven, p), Value: int64(seen)})
		if had := int64(head.number(FieldPatience, p)); had > 0 {
			less := had / 2
			if less < leastPatience.Milliseconds() {
				less = 0
			}
			err := h.Update(ctx, t, bson.D{{Key: "$set", Value: bson.D{{Key: Path(FieldPatience, p), Value: less}}}},
				bson.E{Key: Path(FieldPatience, p), Value: had})
			if err != nil {
				return err
			}
		}
	}
	if len(raise) > 0 {
		if err := h.Update(ctx, t, bson.D{{Key: "$max", Value: raise}}); err != nil {
			return err
		}
	}
	for p := range t.Parts {
		if head.Timed(p)+times.Block <= max(t.Parts[p].Seen.Load(), head.Watermark(p)) {
			return h.store.Causally(ctx, func(ctx context.Context) error { return h.addTimes(ctx, t) })
		}
	}
	return nil
}

// addTimes adds the blocks up to the watermark to package times.
func (h *Heads) addTimes(ctx context.Context, t *topics.Topic) error {
	for {
		head, err := h.Find(ctx, t)
		if err != nil {
			return err
		}
		var updates []mongo.WriteModel
		var raise bson.D
		for p := range t.Parts {
			removed := times.BlockOf(head.First(p)) * times.Block
			from := max(head.Timed(p), removed)
			some, upTo, err := times.Partition{Store: h.store, Topic: t.Name, P: p}.Add(ctx, from, head.Watermark(p))
			if err != nil {
				return err
			}
			updates = append(updates, some...)
			if upTo > head.Timed(p) {
				raise = append(raise, bson.E{Key: Path(FieldTimed, p), Value: int64(upTo)})
			}
		}
		if len(raise) == 0 {
			return nil
		}
		if _, err := h.store.BulkWrite(ctx, core.Times, updates); err != nil {
			return err
		}
		if err := h.Update(ctx, t, bson.D{{Key: "$max", Value: raise}}); err != nil {
			return err
		}
	}
}
