package pebblelog

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Sweep implements eventlog.Retainer. Its commits are not synced: what a crash brings back, the
// next sweep removes again.
func (l *Log) Sweep(ctx context.Context, name string, r eventlog.Retention, now int64, limit int) (removed int, more bool, err error) {
	t, leave, err := l.enterSweep(ctx, name)
	if err != nil {
		return 0, false, err
	}
	defer leave()
	s := sweep{log: l, topic: t, keep: r, now: now}
	if r.TTLMS > 0 || r.UpTo != nil {
		for p := 0; p < len(t.partitions) && !more; p++ {
			var n int
			n, more, err = s.events(ctx, p, limit-removed)
			if removed += n; err != nil {
				return removed, more, err
			}
		}
	}
	moreRemnants, err := s.remnants(ctx, limit)
	return removed, more || moreRemnants, err
}

// sweep removes events of a topic. Only one runs at a time: two could remove an id that was
// published again in between.
type sweep struct {
	log   *Log
	topic *topic
	keep  eventlog.Retention
	now   int64
	erase bool // nothing of what is removed may stay on the disk

	runs    []run    // of which single events are removed
	removed []stored // these events
}

// events removes up to limit expired events from the low end of a partition, in one commit. more
// says that there are others.
func (s *sweep) events(ctx context.Context, p, limit int) (n int, more bool, err error) {
	part, err := s.log.partition(s.topic, p)
	if err != nil {
		return 0, false, err
	}
	b := s.log.db.NewBatch()
	floor := part.floor.Load()
	last := floor
	for r, err := range s.log.records(ctx, s.topic, p, floor+1, part.head.Load()) {
		if err != nil {
			return 0, false, err
		}
		if !s.keep.Over(p, r.Seq, r.AcceptedAt, s.now) {
			break
		}
		if more = n == limit; more {
			break
		}
		s.forget(b, r)
		last = r.Seq
		n++
	}
	if n == 0 {
		return 0, more, nil
	}
	if err := s.log.raiseFloor(b, s.topic, p, last); err != nil {
		return 0, false, err
	}
	if err := s.log.commits.applyUnsynced(ctx, b); err != nil {
		return 0, false, err
	}
	part.floor.Store(last)
	s.log.reclaim.wake.Set()
	return n, more, nil
}

// raiseFloor removes a partition's events up to a seq, but not their index entries. A run that has later events
// stays. So does the last of the removed entries of the time index: later events in order may follow it.
func (l *Log) raiseFloor(b *pebble.Batch, t *topic, p int, upTo uint64) error {
	low, next := eventKey(nil, t.id, p, 0), eventKey(nil, t.id, p, upTo+1)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: eventKey(nil, t.id, p+1, 0)})
	if err != nil {
		return failed(err)
	}
	defer it.Close()
	if it.SeekLT(next) {
		value, err := it.ValueAndErr()
		if err != nil {
			return failed(err)
		}
		r, err := decodeRun(t.id, p, it.Key(), value)
		if err != nil {
			return failed(err)
		}
		if r.last() > upTo {
			next = r.key(nil)
		}
	}
	if err := it.Error(); err != nil {
		return failed(err)
	}
	_ = b.DeleteRange(low, next, nil)
	_ = b.Set(floorKey(t.id, p), binary.AppendUvarint(nil, upTo), nil)
	if err := l.passNodes(b, t, p, upTo); err != nil {
		return err
	}
	prefix := orderPrefix(nil, t.id, p)
	var keep []byte
	for e, err := range entries(context.Background(), l.db, &pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}) {
		if err != nil {
			return err
		}
		if d := (decoder{rest: e.value}); d.uvarint() > upTo {
			break
		}
		keep = append(keep[:0], e.key...)
	}
	if keep != nil {
		_ = b.DeleteRange(prefix, keep, nil)
	}
	return nil
}

// passNodes removes the nodes whose blocks are below a floor.
func (l *Log) passNodes(b *pebble.Batch, t *topic, p int, upTo uint64) error {
	for level := range levels {
		first, next := nodeOf(t.id, p, level, 1), nodeOf(t.id, p, level, upTo+1)
		for e, err := range entries(context.Background(), l.db, &pebble.IterOptions{LowerBound: first.key(), UpperBound: next.key()}) {
			if err != nil {
				return err
			}
			_ = b.Delete(e.key, nil)
		}
	}
	return nil
}

// clear removes one event from its run; cleared writes that.
func (s *sweep) clear(r stored) error {
	s.removed = append(s.removed, r)
	for i := range s.runs {
		if x := &s.runs[i]; x.partition == r.Partition && x.first <= r.Seq && r.Seq <= x.last() {
			x.live &^= 1 << (r.Seq - x.first)
			return nil
		}
	}
	c, err := s.log.view().open(s.topic, r.Partition, nil)
	if err != nil {
		return failed(err)
	}
	defer c.close()
	if !c.find(r.Seq) {
		return failed(cmp.Or(c.err, fmt.Errorf("seq %d of partition %d is missing", r.Seq, r.Partition)))
	}
	c.run.live &^= 1 << (r.Seq - c.run.first)
	s.runs = append(s.runs, c.run)
	return nil
}

// cleared writes the runs that events were removed from.
func (s *sweep) cleared(b *pebble.Batch) {
	for i := range s.runs {
		x := &s.runs[i]
		if x.live == 0 {
			_ = b.Delete(x.key(nil), nil)
		} else {
			_ = b.Set(x.key(nil), x.value(nil), nil)
		}
		s.log.reclaim.cleared(x, s.erase)
	}
	s.runs = nil
	s.log.reclaim.wake.Set()
}

// forget removes an event's index entries, and keeps its id while the deduplication window lasts.
func (s *sweep) forget(b *pebble.Batch, r stored) {
	if window := s.keep.DedupeWindowMS; window > 0 && r.AcceptedAt <= s.now-window {
		unindex(b, s.topic.id, r)
		_ = b.Delete(idKey(nil, s.topic.id, r.ID), nil)
		return
	}
	s.leave(b, r, codec.ContentHash(&r.Event))
}

// unindex removes an event's entries, except for those of its seq and its id.
func unindex(b *pebble.Batch, topic uint32, r stored) {
	if r.outOfOrder {
		_ = b.Delete(timeKey(nil, topic, r.TS, r.ID), nil)
	}
	if r.Key != "" {
		_ = b.Delete(keyTimeKey(nil, topic, r.Key, r.TS, r.ID), nil)
		_ = b.Delete(keySeqKey(nil, topic, r.Key, r.Partition, r.Seq), nil)
	}
}

// leave removes an event's index entries, and keeps its id and the hash of its content.
func (s *sweep) leave(b *pebble.Batch, r stored, hash [32]byte) {
	unindex(b, s.topic.id, r)
	left := idEntry{
		location: location{partition: r.Partition, seq: r.Seq},
		remnant:  true, ts: r.TS, acceptedAt: r.AcceptedAt, hash: hash,
	}
	_ = b.Set(idKey(nil, s.topic.id, r.ID), appendIDEntry(nil, left), nil)
	_ = b.Set(remnantKey(nil, s.topic.id, r.AcceptedAt, r.ID), nil, nil)
}

// remnants removes up to limit ids whose window is over, oldest first.
func (s *sweep) remnants(ctx context.Context, limit int) (more bool, err error) {
	if s.keep.DedupeWindowMS <= 0 {
		return false, nil
	}
	prefix := topicPrefix(nil, kindRemnant, s.topic.id)
	expired := appendTime(prefix[:len(prefix):len(prefix)], s.now-s.keep.DedupeWindowMS+1)
	_, more, err = s.log.removeInOrder(ctx, prefix, expired, limit, func(b *pebble.Batch, rest []byte) error {
		return b.Delete(idKey(nil, s.topic.id, pointAt(rest).ID), nil)
	})
	return more, err
}

// removeInOrder removes up to limit entries between two keys, in one commit; also removes what
// belongs to an entry, given the part of its key behind the prefix. more says that there are
// entries left.
func (l *Log) removeInOrder(ctx context.Context, from, to []byte, limit int,
	also func(b *pebble.Batch, rest []byte) error) (removed int, more bool, err error) {
	b := l.db.NewBatch()
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: from, UpperBound: to}) {
		if err != nil {
			return 0, false, err
		}
		if more = removed == limit; more {
			break
		}
		_ = b.Delete(e.key, nil)
		if err := also(b, e.key[len(from):]); err != nil {
			return 0, false, err
		}
		removed++
	}
	if removed == 0 {
		return 0, more, nil
	}
	return removed, more, l.commits.applyUnsynced(ctx, b)
}

// SweepMarks implements eventlog.Retainer.
func (l *Log) SweepMarks(ctx context.Context, now int64, limit int) (removed int, more bool, err error) {
	if err := l.enter(ctx); err != nil {
		return 0, false, err
	}
	defer l.leave()
	// Marks must not be renewed between the look at one and its removal.
	if err := l.marksTurn.Lock(ctx); err != nil {
		return 0, false, err
	}
	defer l.marksTurn.Unlock()
	from := []byte{kindMarkTime}
	return l.removeInOrder(ctx, from, appendTime([]byte{kindMarkTime}, now+1), limit, func(b *pebble.Batch, rest []byte) error {
		// The mark's key follows the time, without its kind.
		key := append([]byte{kindMark}, rest[8:]...)
		value, found, err := l.get(key)
		if err != nil || !found {
			return err
		}
		expires, err := decodeExpiry(value)
		if err != nil || expires != timeAt(rest) {
			return err
		}
		return b.Delete(key, nil)
	})
}
