package mongolog

import (
	"context"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// sweepBatch bounds the documents that one step of a sweep reads and changes.
const sweepBatch = 1000

func headID(topic string, p int, seq int64) string {
	return topic + "/" + strconv.Itoa(p) + "/" + strconv.FormatInt(seq, 10)
}

// Sweep implements eventlog.Retainer. Expired events become stubs, and stubs
// are deleted when nothing needs them any more; see stubs.go. Several may run
// at once: then each counts what it found to remove.
func (l *Log) Sweep(ctx context.Context, name string, r eventlog.Retention, now int64, limit int) (removed int, more bool, err error) {
	if _, err := l.LookupTopic(ctx, name); err != nil {
		return 0, false, err
	}
	s := sweep{
		log: l, topic: l.catalog.cached(name), scans: l.engine().scans,
		keep: r, remember: remembering{windowMS: r.DedupeWindowMS, now: now}, now: now, limit: limit,
	}
	if err := s.expire(ctx); err != nil {
		return s.removed, s.more, err
	}
	err = s.forget(ctx)
	return s.removed, s.more, err
}

// within runs one step of something long as an operation of its own, so that
// Options.Timeout is for the step.
func (l *Log) within(ctx context.Context, op string, step func(ctx context.Context) error) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := step(ctx); err != nil {
		return unavailable(ctx, op, err)
	}
	return nil
}

// sweep is one call of Sweep.
type sweep struct {
	log   *Log
	topic *topic
	scans bool // the engine's

	keep     eventlog.Retention
	remember remembering
	now      int64
	limit    int

	removed, forgotten int // events and ids
	more               bool
}

func (s *sweep) expired(accepted int64) bool {
	return s.keep.TTLMS > 0 && accepted <= s.now-s.keep.TTLMS
}

// expire makes stubs of expired events, partition by partition.
func (s *sweep) expire(ctx context.Context) error {
	if s.keep.TTLMS <= 0 {
		return nil
	}
	partitions, err := s.partitionsToExpire(ctx)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if s.more {
			break
		}
		// What is above the lowest live event waits for that one.
		if oldest := s.topic.partitions[p].oldest.Load(); oldest > 0 && !s.expired(oldest) {
			continue
		}
		// One document tells whether there is anything to do.
		size, on := 1, true
		for on {
			err := s.log.within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) (err error) {
				on, err = s.expireBatch(ctx, p, size)
				return err
			})
			// And one more than may go, whether more could.
			size = min(s.limit-s.removed+1, sweepBatch)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// partitionsToExpire are all of them where the index tells a partition's oldest
// event at once. Elsewhere one look at everything finds those that have expired
// ones.
func (s *sweep) partitionsToExpire(ctx context.Context) (partitions []int, err error) {
	if !s.scans {
		for p := range s.topic.partitions {
			partitions = append(partitions, p)
		}
		return partitions, nil
	}
	err = s.log.within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) error {
		old := bson.D{{Key: document.FieldTopic, Value: s.topic.Name},
			{Key: document.FieldAccepted, Value: bson.D{{Key: "$lte", Value: s.now - s.keep.TTLMS}}}, live}
		return eachEntry(ctx, s.log.majority(eventsName), old, func(e entry) {
			if e.Partition < len(s.topic.partitions) && !slices.Contains(partitions, e.Partition) {
				partitions = append(partitions, e.Partition)
			}
		})
	})
	slices.Sort(partitions)
	return partitions, err
}

// expireBatch looks at so many of the lowest documents of a partition that are
// not known to be gone, makes stubs of the expired events, and reports whether
// there may be more of them.
func (s *sweep) expireBatch(ctx context.Context, p, size int) (on bool, err error) {
	from, err := s.log.floor(ctx, s.topic, p)
	if err != nil {
		return false, err
	}
	page, err := findAll[entry](ctx, s.log, s.log.majority(eventsName),
		inPartition(s.topic.Name, p, bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: int64(from)}}}),
		options.Find().SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(int64(size)).SetProjection(entryFields))
	if err != nil {
		return false, err
	}
	var victims []entry
	next, on := int64(from), len(page) == size
	for _, e := range page {
		if !e.Gone {
			if !s.expired(e.Accepted) {
				s.topic.partitions[p].oldest.Store(e.Accepted)
				on = false
				break
			}
			if s.removed+len(victims) >= s.limit {
				s.more, on = true, false
				break
			}
			victims = append(victims, e)
		}
		next = e.Seq + 1
	}
	if len(victims) > 0 {
		if err := s.log.makeStubs(ctx, s.topic, p, victims, true, s.remember); err != nil {
			return false, err
		}
		s.removed += len(victims)
	}
	s.topic.partitions[p].raiseFloor(uint64(next))
	return on, nil
}

// raiseFloor remembers that nothing below seq is readable any more.
func (p *partition) raiseFloor(seq uint64) {
	for {
		was := p.floor.Load()
		if was >= seq || p.floor.CompareAndSwap(was, seq) {
			return
		}
	}
}

// unsweptFor is how long a topic that was found to have no stubs is taken to
// have none: what other sidecars leave meanwhile can wait, and most topics never
// have any.
const unsweptFor = time.Hour

// forget deletes stubs whose time is over.
func (s *sweep) forget(ctx context.Context) error {
	if s.keep.DedupeWindowMS <= 0 || s.log.opts.Clock.Since(time.UnixMilli(s.topic.unswept.Load())) < unsweptFor {
		return nil
	}
	var swept []entry // of the partitions that have ever been
	err := s.log.within(ctx, "sweep topic "+s.topic.Name, func(ctx context.Context) (err error) {
		swept, err = findAll[entry](ctx, s.log, s.log.majority(headsName), bson.D{{Key: document.FieldTopic, Value: s.topic.Name}},
			options.Find().SetProjection(entryFields))
		return err
	})
	switch {
	case err != nil:
		return err
	case len(swept) == 0:
		s.topic.unswept.Store(s.log.opts.Clock.Now().UnixMilli())
		return nil
	case s.scans:
		return s.log.within(ctx, "sweep topic "+s.topic.Name, s.forgetAnywhere)
	}
	return s.forgetLowest(ctx, partitionsOf(swept))
}

// needless says that nothing needs the stub any more.
func (s *sweep) needless(e entry) bool {
	return e.Gone && s.remember.over(e.Accepted) && e.GoneAt <= s.goneBefore()
}

// goneBefore is when the stubs were made that no appender needs any more.
func (s *sweep) goneBefore() int64 {
	return s.log.opts.Clock.Now().Add(-s.log.opts.StaleHead).UnixMilli()
}

// forgetAnywhere deletes stubs wherever they are, for engines that look at
// everything anyway and have no TTL index.
func (s *sweep) forgetAnywhere(ctx context.Context) error {
	filter := bson.D{{Key: document.FieldTopic, Value: s.topic.Name}, stubs,
		{Key: document.FieldAccepted, Value: bson.D{{Key: "$lte", Value: s.now - s.keep.DedupeWindowMS}}},
		{Key: fieldGoneAt, Value: bson.D{{Key: "$lte", Value: s.goneBefore()}}}}
	page, err := findAll[entry](ctx, s.log, s.log.majority(eventsName), filter,
		options.Find().SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(int64(s.limit)+1).SetProjection(entryFields))
	if err != nil {
		return err
	}
	if len(page) > s.limit {
		page, s.more = page[:s.limit], true
	}
	seqs := map[int][]int64{}
	for _, e := range page {
		seqs[e.Partition] = append(seqs[e.Partition], e.Seq)
	}
	for p, list := range seqs {
		if err := s.log.deleteStubs(ctx, s.topic, p, list); err != nil {
			return err
		}
	}
	return nil
}

// forgetLowest deletes stubs at the low ends of partitions, which is where
// sweeps leave them. A TTL index deletes them too, and those that compaction
// leaves in the middle; but here the policy counts that is in force now.
func (s *sweep) forgetLowest(ctx context.Context, partitions []int) error {
	for _, p := range partitions {
		// One document tells whether there is anything to do.
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

// partitionsOf are the partitions of the entries, each once, ascending.
func partitionsOf(entries []entry) []int {
	var list []int
	for _, e := range entries {
		list = append(list, e.Partition)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// forgetBatch looks at so many of a partition's lowest documents, and returns
// how many to look at next; 0 is the end.
func (s *sweep) forgetBatch(ctx context.Context, p, size int) (next int, err error) {
	page, err := findAll[entry](ctx, s.log, s.log.majority(eventsName), inPartition(s.topic.Name, p),
		options.Find().SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(int64(size)).SetProjection(entryFields))
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(page) && s.needless(page[n]) {
		n++
	}
	left := s.limit - s.forgotten
	switch {
	case n == 0:
		return 0, nil
	case left == 0:
		s.more = true
		return 0, nil
	}
	last := n < size // the next one stays, or there is none
	if n > left {
		n, last, s.more = left, true, true
	}
	if err := s.log.deleteStubs(ctx, s.topic, p, seqsOf(page[:n])); err != nil {
		return 0, err
	}
	s.forgotten += n
	if last {
		return 0, nil
	}
	return sweepBatch, nil
}
