package removal

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/times"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Sweep implements eventlog.Retainer. Expired events become stubs, and stubs are deleted when
// nothing needs them any more. Several sweeps may run at once; each then counts the
// events that it tried to remove.
func (r *Remover) Sweep(
	ctx context.Context, name string, keep eventlog.Retention, now int64, limit int,
) (removed int, more bool, err error) {
	t, err := r.catalog.Known(ctx, name)
	if err != nil {
		return 0, false, err
	}
	s := sweep{
		Remover: r, topic: t,
		keep: keep, remember: events.Remembering{WindowMS: keep.DedupeWindowMS, Now: now}, now: now, limit: limit,
	}
	if err := r.store.Within(ctx, "sweep topic "+name, s.raiseWatermark); err != nil {
		return 0, false, err
	}
	if err := s.expire(ctx); err != nil {
		return s.removed, s.more, err
	}
	return s.removed, s.more, s.forget(ctx)
}

// sweep is one call of Sweep.
type sweep struct {
	*Remover
	topic *topics.Topic
	head  heads.Head // the head when the sweep began

	keep     eventlog.Retention
	remember events.Remembering
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
	for p := range s.topic.Parts {
		if s.more {
			break
		}
		// Events above the lowest live event are not removed before it.
		part := &s.topic.Parts[p]
		if oldest := part.Oldest.Load(); oldest > 0 && !s.keep.Over(p, part.Floor.Load(), oldest, s.now) {
			continue
		}
		// One document shows whether there is anything to do.
		size, on := 1, true
		for on {
			err := s.store.Within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) (err error) {
				on, err = s.expireBatch(ctx, p, size)
				return err
			})
			// One document more than may be removed shows whether there are more.
			size = min(s.limit-s.removed+1, events.Batch)
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
	from, watermark := s.topic.Parts[p].Floor.Load(), s.head.Watermark(p)
	if from > watermark {
		return false, nil
	}
	page, err := events.FindLive(ctx, s.store, s.topic.Name, p, size, events.Between(int64(from), int64(watermark)))
	if err != nil {
		return false, err
	}
	n := 0
	for n < len(page) && s.keep.Over(p, uint64(page[n].Seq), page[n].Accepted, s.now) {
		n++
	}
	if n < len(page) {
		s.topic.Parts[p].Oldest.Store(page[n].Accepted)
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
		if err := s.retire(ctx, s.topic, p, victims, s.remember); err != nil {
			return false, err
		}
		s.removed += len(victims)
	}
	if uint64(next) > from {
		first := bson.D{{Key: "$max", Value: bson.D{{Key: heads.Path(heads.FieldFirst, p), Value: next}}}}
		switch minTS := heads.Path(heads.FieldMinTS, p); {
		case n < len(page):
			first = append(first, bson.E{Key: "$set", Value: bson.D{{Key: minTS, Value: page[n].TS}}})
		case !on:
			first = append(first, bson.E{Key: "$unset", Value: bson.D{{Key: minTS, Value: ""}}})
		}
		if err := s.heads.Update(ctx, s.topic, first); err != nil {
			return false, err
		}
		topics.Raise(&s.topic.Parts[p].Floor, uint64(next))
		if times.Forgets(from, uint64(next)) {
			return on, times.Partition{Store: s.store, Topic: s.topic.Name, P: p}.Forget(ctx, uint64(next))
		}
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
	for p := range s.topic.Parts {
		part := &s.topic.Parts[p]
		if part.Unswept.Load() == part.Floor.Load() {
			continue
		}
		// One document shows whether there is anything to do.
		for size := 1; size > 0; {
			err := s.store.Within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) (err error) {
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
	if s.head, err = s.heads.Read(ctx, s.topic); err != nil {
		return err
	}
	open := false
	var known []eventlog.Hint
	for p := range s.topic.Parts {
		topics.Raise(&s.topic.Parts[p].Floor, s.head.First(p))
		known = append(known, eventlog.Hint{Topic: s.topic.Name, Partition: p, Head: s.head.Given(p)})
		open = open || s.head.Watermark(p) < s.head.Given(p) || s.head.Timed(p)+times.Block <= s.head.Watermark(p)
	}
	if !open && s.head.Lone() != 0 { // what its lone writer has stored
		ahead, err := s.reads.Ahead(ctx, known)
		if err != nil {
			return err
		}
		open = len(ahead) > 0
	}
	if !open {
		return nil
	}
	if _, err = s.heads.Extents(ctx, s.topic, s.head); err != nil {
		return err
	}
	if err = s.heads.RaiseWatermark(ctx, s.topic, s.head); err != nil {
		return err
	}
	s.head, err = s.heads.Read(ctx, s.topic)
	return err
}

// forgetBatch reads so many of a partition's lowest documents, and returns how many to read next; 0
// is the end.
func (s *sweep) forgetBatch(ctx context.Context, p, size int) (next int, err error) {
	o := options.Find().SetHint(events.BySeq).SetSort(events.BySeq).
		SetLimit(int64(size)).SetProjection(events.EntryFields)
	filter := events.InPartition(s.topic.Name, p, events.Between(0, int64(s.head.Watermark(p))))
	page, err := core.FindAll[events.Entry](ctx, s.store, core.Events, filter, o)
	if err != nil {
		return 0, err
	}
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return 0, err
	}
	goneBefore := now.Add(-s.store.SeqTaken).UnixMilli() // the seqs of these stubs need not be taken any more
	n := 0
	for n < len(page) && page[n].Gone && s.remember.Over(page[n].Accepted) && page[n].GoneAt <= goneBefore {
		n++
	}
	left := s.limit - s.forgotten
	switch {
	case n == 0 && (len(page) == 0 || !page[0].Gone):
		s.topic.Parts[p].Unswept.Store(s.topic.Parts[p].Floor.Load())
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
	err = s.store.Persist(ctx, func() error {
		old := events.InPartition(s.topic.Name, p, events.Among(events.Seqs(page[:n])), events.Stubs)
		_, err := s.store.Majority(core.Events).DeleteMany(ctx, old)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.forgotten += n
	if last {
		return 0, nil
	}
	return events.Batch, nil
}
