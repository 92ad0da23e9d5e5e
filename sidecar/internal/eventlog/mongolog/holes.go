package mongolog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// A hole is a range of seqs that were given out and have no document: an append is on its way, or
// will never arrive. Readers wait as long as it may be on its way. Then they insert a void at each
// seq. The unique index makes voids refuse late inserts. Readers continue once they have read the
// voids back. Voids and stubs keep a seq taken for DefaultSeqTaken, so that late inserts collide
// with them.
const (
	// leastPatience is how long a hole must exist before readers void it. A live writer whose seqs
	// were voided asks for more, up to mostPatience.
	leastPatience = 5 * time.Second
	mostPatience  = time.Minute
	// maxVoids bounds the voids of one insert.
	maxVoids = 1000
	// watermarkEvery is how often a log raises the watermark of a topic.
	watermarkEvery = time.Second
)

// holes are the missing seqs of a partition as this log sees them.
type holes struct {
	mu sync.Mutex
	// reserved is the highest seq given out at the time since. A missing seq up to it has been
	// missing at least since then.
	reserved uint64
	since    time.Time
}

// stood notes that the seqs from first to last are missing. It returns the highest of them that has
// been missing for longer than patience; 0: none. head is the highest seq given out.
func (h *holes) stood(c clock.Clock, first, last, head uint64, patience time.Duration) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first > h.reserved || h.since.IsZero() {
		h.reserved, h.since = head, c.Now()
		return 0
	}
	if c.Since(h.since) < patience {
		return 0
	}
	return min(last, h.reserved, first+maxVoids-1)
}

// fieldVoid marks a document without an event.
const fieldVoid = "void"

// void is the document that takes a seq without an event; at is the server's time.
func void(topic string, p int, seq uint64, at time.Time) bson.D {
	return bson.D{
		{Key: document.FieldID, Value: bson.D{{Key: fieldVoid, Value: topic}, {Key: "partition", Value: p}, {Key: "seq", Value: int64(seq)}}},
		{Key: document.FieldTopic, Value: topic}, {Key: document.FieldPartition, Value: p}, {Key: document.FieldSeq, Value: int64(seq)},
		{Key: document.FieldGone, Value: true}, {Key: fieldVoid, Value: true},
		{Key: fieldGoneAt, Value: at.UnixMilli()}, {Key: document.FieldExpireAt, Value: at.Add(DefaultSeqTaken)},
	}
}

// fill voids the seqs from first to last. An event that was stored meanwhile stays as it is.
func (l *Log) fill(ctx context.Context, t *topic, p int, first, last uint64) error {
	at, err := l.serverTime(ctx)
	if err != nil {
		return err
	}
	var docs []any
	for seq := first; seq <= last; seq++ {
		docs = append(docs, void(t.Name, p, seq, at))
	}
	l.opts.Logger.Info("voided seqs that were reserved and stayed empty", "topic", t.Name, "partition", p, "first", first, "last", last)
	return l.insertNew(ctx, eventsName, docs)
}

// onlyDuplicates reports whether duplicate keys alone prevented an unordered insert from storing
// everything.
func onlyDuplicates(err error) bool {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != codeDuplicateKey {
			return false
		}
	}
	return true
}

// serverClock is the server's time in a reply.
type serverClock struct {
	mu   sync.Mutex
	told time.Time
	at   moment // when the reply arrived
}

// serverTimeFor is for how long the log relies on a reply's time.
const serverTimeFor = time.Minute

// serverTime is the time by the server's clock, or a little before it.
func (l *Log) serverTime(ctx context.Context) (time.Time, error) {
	s := &l.serverClock
	s.mu.Lock()
	told, at := s.told, s.at
	s.mu.Unlock()
	if told.IsZero() || at.age(l.opts.Clock) > serverTimeFor {
		var hello struct {
			LocalTime time.Time `bson:"localTime"`
		}
		if err := l.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
			return time.Time{}, fmt.Errorf("hello: %w", err)
		}
		told, at = hello.LocalTime, now(l.opts.Clock)
		s.mu.Lock()
		s.told, s.at = told, at
		s.mu.Unlock()
	}
	return told.Add(l.opts.Clock.Since(at.mono)), nil
}

// morePatience is the wait that a live writer asks of readers after they voided its seqs.
func (l *Log) morePatience(ctx context.Context, t *topic, p int) (time.Duration, error) {
	head, err := l.readHead(ctx, t)
	if err != nil {
		return 0, err
	}
	return min(2*head.patience(p), mostPatience), nil
}

// raiseHead raises the head to the highest stored seq, so that no seq up to it is given out.
func (l *Log) raiseHead(ctx context.Context, t *topic, p int) error {
	highest, err := l.findSeq(ctx, inPartition(t.Name, p), bySeq, -1)
	if err != nil {
		return err
	}
	return l.updateHead(ctx, t, bson.D{{Key: "$max", Value: bson.D{{Key: of(fieldHead, p), Value: int64(highest)}}}})
}

func (l *Log) updateHead(ctx context.Context, t *topic, update bson.D, expected ...bson.E) error {
	return l.persist(ctx, func() error {
		_, err := l.majority(eventsName).UpdateOne(ctx, append(byHead(t.Name), expected...), update)
		return err
	})
}

// contiguous is the highest seq up to which nothing is missing. The caller knows that nothing is
// missing up to end. contiguous voids holes that are old enough, once each.
func (l *Log) contiguous(ctx context.Context, t *topic, p int, head topicHead, end uint64) (uint64, error) {
	o := options.Find().SetHint(bySeq).SetLimit(maxBatch).SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).
		SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: document.FieldSeq, Value: 1}, {Key: fieldVoid, Value: 1}})
	var voided uint64 // the highest seq that this call has voided
	for highest := head.head(p); end < highest; {
		docs, err := findAll[struct {
			Seq  int64 `bson:"seq"`
			Void bool  `bson:"void"`
		}](ctx, l, l.majority(eventsName), inPartition(t.Name, p, between(int64(end)+1, int64(highest))), o)
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
		t.partitions[p].newest.saw(first, end, last)
		if end == highest || len(docs) == maxBatch && missing == highest {
			continue
		}
		upTo := t.partitions[p].holes.stood(l.opts.Clock, end+1, missing, highest, head.patience(p))
		if upTo <= voided {
			break
		}
		if err := l.fill(ctx, t, p, end+1, upTo); err != nil {
			return 0, err
		}
		voided = upTo
	}
	return end, nil
}

// newest is the highest seq of an event, for partitions that have voids above it.
type newest struct {
	mu sync.Mutex
	// last is the highest seq of an event up to exact.
	last, exact uint64
}

// saw notes that a reader has seen all documents from first to to. last is the highest event among
// them; 0: there is none.
func (x *newest) saw(first, to, last uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if first <= x.exact+1 && to > x.exact {
		x.exact, x.last = to, max(x.last, last)
	}
}

// at is the highest event up to end, if that is known.
func (x *newest) at(end uint64) (last uint64, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last, x.exact == end && x.last > 0
}

// see notes that a majority has everything up to a seq.
func (p *partition) see(seq uint64) { raise(&p.seen, seq) }

// raiseWatermarkSoon raises the watermark to the seqs that this log has read up to, at most once in
// watermarkEvery.
func (l *Log) raiseWatermarkSoon(t *topic, head topicHead) {
	due := t.watermarkDue.Load()
	now := l.opts.Clock.Now().UnixNano()
	if now < due || !t.watermarkDue.CompareAndSwap(due, now+int64(watermarkEvery)) {
		return
	}
	l.spawn(func() {
		err := l.within(l.ctx, "raise the watermark", func(ctx context.Context) error { return l.raiseWatermark(ctx, t, head) })
		if err != nil {
			l.opts.Logger.Debug("could not raise the watermark of a topic", "topic", t.Name, "error", err)
		}
	})
}

// raiseWatermark raises the watermark of each partition to the seq that this log has seen, and
// lowers the patience of those partitions.
func (l *Log) raiseWatermark(ctx context.Context, t *topic, head topicHead) error {
	var raise bson.D
	for p := range t.partitions {
		seen := t.partitions[p].seen.Load()
		if seen <= head.watermark(p) {
			continue
		}
		raise = append(raise, bson.E{Key: of(fieldWatermark, p), Value: int64(seen)}, bson.E{Key: of(fieldHead, p), Value: int64(seen)})
		if had := int64(head.number(fieldPatience, p)); had > 0 {
			less := had / 2
			if less < leastPatience.Milliseconds() {
				less = 0
			}
			err := l.updateHead(ctx, t, bson.D{{Key: "$set", Value: bson.D{{Key: of(fieldPatience, p), Value: less}}}},
				bson.E{Key: of(fieldPatience, p), Value: had})
			if err != nil {
				return err
			}
		}
	}
	if len(raise) == 0 {
		return nil
	}
	return l.updateHead(ctx, t, bson.D{{Key: "$max", Value: raise}})
}
