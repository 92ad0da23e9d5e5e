package mongolog

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// sweepBatch bounds the documents that one step of a sweep reads and changes.
const sweepBatch = 1000

// Sweep implements eventlog.Retainer. Expired events become stubs, and stubs are deleted when
// nothing needs them any more; see stubs.go. Several sweeps may run at once; each then counts the
// events that it tried to remove.
func (l *Log) Sweep(ctx context.Context, name string, r eventlog.Retention, now int64, limit int) (removed int, more bool, err error) {
	t, err := l.known(ctx, name)
	if err != nil {
		return 0, false, err
	}
	s := sweep{
		log: l, topic: t,
		keep: r, remember: remembering{windowMS: r.DedupeWindowMS, now: now}, now: now, limit: limit,
	}
	if err := l.within(ctx, "sweep topic "+name, s.raiseWatermark); err != nil {
		return 0, false, err
	}
	if err := s.expire(ctx); err != nil {
		return s.removed, s.more, err
	}
	return s.removed, s.more, s.forget(ctx)
}

// within runs one step of a long operation as an operation of its own, so that Options.Timeout
// bounds the step.
func (l *Log) within(ctx context.Context, op string, step func(ctx context.Context) error) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := step(ctx); err != nil {
		return l.unavailable(ctx, op, err)
	}
	l.reached()
	return nil
}

// sweep is one call of Sweep.
type sweep struct {
	log   *Log
	topic *topic
	head  topicHead // the head when the sweep began

	keep     eventlog.Retention
	remember remembering
	now      int64
	limit    int

	removed, forgotten int // events and ids
	more               bool
}

// expire turns expired events into stubs, partition by partition.
func (s *sweep) expire(ctx context.Context) error {
	if s.keep.TTLMS <= 0 && s.keep.UpTo == nil {
		return nil
	}
	for p := range s.topic.partitions {
		if s.more {
			break
		}
		// Events above the lowest live event are not removed before it.
		part := &s.topic.partitions[p]
		if oldest := part.oldest.Load(); oldest > 0 && !s.keep.Over(p, part.floor.Load(), oldest, s.now) {
			continue
		}
		// One document shows whether there is anything to do.
		size, on := 1, true
		for on {
			err := s.log.within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) (err error) {
				on, err = s.expireBatch(ctx, p, size)
				return err
			})
			// One document more than may be removed shows whether there are more.
			size = min(s.limit-s.removed+1, sweepBatch)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// expireBatch reads so many of the lowest events of a partition, turns the expired ones into stubs,
// and reports whether there may be more of them.
func (s *sweep) expireBatch(ctx context.Context, p, size int) (on bool, err error) {
	from, watermark := s.topic.partitions[p].floor.Load(), s.head.watermark(p)
	if from > watermark {
		return false, nil
	}
	page, err := findAll[entry](ctx, s.log, s.log.majority(eventsName),
		inPartition(s.topic.Name, p, between(int64(from), int64(watermark)), live), options.Find().SetHint(s.log.hint(byLiveSeq)).
			SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(int64(size)).SetProjection(entryFields))
	if err != nil {
		return false, err
	}
	n := 0
	for n < len(page) && s.keep.Over(p, uint64(page[n].Seq), page[n].Accepted, s.now) {
		n++
	}
	if n < len(page) {
		s.topic.partitions[p].oldest.Store(page[n].Accepted)
	}
	if left := s.limit - s.removed; n > left {
		n, s.more = left, true
	}
	victims, next, on := page[:n], int64(watermark)+1, n == size
	switch {
	case n < len(page):
		next = page[n].Seq
	case on:
		next = page[n-1].Seq + 1
	}
	if len(victims) > 0 {
		if err := s.log.makeStubs(ctx, s.topic, p, victims, s.remember); err != nil {
			return false, err
		}
		s.removed += len(victims)
	}
	if uint64(next) > from {
		first := bson.D{{Key: "$max", Value: bson.D{{Key: of(fieldFirst, p), Value: next}}}}
		if err := s.log.updateHead(ctx, s.topic, first); err != nil {
			return false, err
		}
		raise(&s.topic.partitions[p].floor, uint64(next))
	}
	return on, nil
}

// forget deletes stubs whose time is over at the low ends of partitions, which is where sweeps
// leave them. A TTL index deletes them too, and stubs that compaction leaves in the middle, at
// times by the policy of the moment when they became stubs. Here the policy in force decides.
func (s *sweep) forget(ctx context.Context) error {
	if s.keep.DedupeWindowMS <= 0 {
		return nil
	}
	for p := range s.topic.partitions {
		part := &s.topic.partitions[p]
		if part.unswept.Load() == part.floor.Load() {
			continue
		}
		// One document shows whether there is anything to do.
		for size := 1; size > 0; {
			err := s.log.within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) (err error) {
				size, err = s.forgetBatch(ctx, p, size)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// raiseWatermark raises the watermark of the topic. Otherwise only readers raise it.
func (s *sweep) raiseWatermark(ctx context.Context) (err error) {
	if s.head, err = s.log.readHead(ctx, s.topic); err != nil {
		return err
	}
	open := false
	for p := range s.topic.partitions {
		raise(&s.topic.partitions[p].floor, s.head.first(p))
		open = open || s.head.watermark(p) < s.head.head(p)
	}
	if !open {
		return nil
	}
	if _, err = s.log.extentsUnder(ctx, s.topic, s.head); err != nil {
		return err
	}
	if err = s.log.raiseWatermark(ctx, s.topic, s.head); err != nil {
		return err
	}
	s.head, err = s.log.readHead(ctx, s.topic)
	return err
}

// forgetBatch reads so many of a partition's lowest documents, and returns how many to read next; 0
// is the end.
func (s *sweep) forgetBatch(ctx context.Context, p, size int) (next int, err error) {
	page, err := findAll[entry](ctx, s.log, s.log.majority(eventsName), inPartition(s.topic.Name, p, between(0, int64(s.head.watermark(p)))),
		options.Find().SetHint(bySeq).SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(int64(size)).SetProjection(entryFields))
	if err != nil {
		return 0, err
	}
	now, err := s.log.serverTime(ctx)
	if err != nil {
		return 0, err
	}
	goneBefore := now.Add(-s.log.opts.SeqTaken).UnixMilli() // the seqs of these stubs need not be taken any more
	n := 0
	for n < len(page) && page[n].Gone && s.remember.over(page[n].Accepted) && page[n].GoneAt <= goneBefore {
		n++
	}
	left := s.limit - s.forgotten
	switch {
	case n == 0 && (len(page) == 0 || !page[0].Gone):
		s.topic.partitions[p].unswept.Store(s.topic.partitions[p].floor.Load())
		return 0, nil
	case n == 0:
		return 0, nil
	case left == 0:
		s.more = true
		return 0, nil
	}
	last := n < size // the next document stays, or there is none
	if n > left {
		n, last, s.more = left, true, true
	}
	err = s.log.persist(ctx, func() error {
		_, err := s.log.majority(eventsName).DeleteMany(ctx, inPartition(s.topic.Name, p, among(seqsOf(page[:n])), stubs))
		return err
	})
	if err != nil {
		return 0, err
	}
	s.forgotten += n
	if last {
		return 0, nil
	}
	return sweepBatch, nil
}
