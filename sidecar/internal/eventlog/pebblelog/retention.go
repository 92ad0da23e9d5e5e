package pebblelog

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// sweepBatch is how many entries one commit of a sweep removes: few enough
// that appends between two of them do not notice.
const sweepBatch = 500

// Sweep implements eventlog.Retainer. Its commits are not synced: what a crash
// brings back, the next sweep removes again.
func (l *Log) Sweep(ctx context.Context, name string, r eventlog.Retention, now int64, limit int) (removed int, more bool, err error) {
	if err := l.enter(ctx); err != nil {
		return 0, false, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return 0, false, err
	}
	// Two sweeps at once could remove an id that was published again in
	// between.
	if err := t.sweeping.Lock(ctx); err != nil {
		return 0, false, err
	}
	defer t.sweeping.Unlock()
	s := sweep{log: l, topic: t, keep: r, now: now, limit: limit}
	if err := s.events(ctx); err != nil {
		return s.removed, s.more, err
	}
	err = s.remnants(ctx)
	return s.removed, s.more, err
}

// sweep is one call of Sweep.
type sweep struct {
	log     *Log
	topic   *topic
	keep    eventlog.Retention
	now     int64
	limit   int
	removed int
	more    bool
}

// over says that something kept for a duration since acceptance has expired;
// a duration of zero never ends.
func (s *sweep) over(acceptedAt, duration int64) bool {
	return duration > 0 && acceptedAt <= s.now-duration
}

// events removes expired events, partition by partition.
func (s *sweep) events(ctx context.Context) error {
	if s.keep.TTLMS <= 0 && s.keep.UpTo == nil {
		return nil
	}
	for p := range s.topic.partitions {
		part, err := s.log.partition(s.topic, p)
		if err != nil {
			return err
		}
		for {
			n, err := s.eventBatch(ctx, p, part)
			if err != nil {
				return err
			}
			if s.removed += n; n < sweepBatch || s.more {
				break
			}
		}
	}
	return nil
}

// eventBatch removes up to sweepBatch expired events from the low end of a
// partition, in one commit.
func (s *sweep) eventBatch(ctx context.Context, p int, part *partition) (n int, err error) {
	floor, head := part.floor.Load(), part.head.Load()
	if floor >= head {
		return 0, nil
	}
	it, err := s.log.db.NewIter(&pebble.IterOptions{
		LowerBound: eventKey(nil, s.topic.id, p, floor+1),
		UpperBound: eventKey(nil, s.topic.id, p, head+1),
	})
	if err != nil {
		return 0, failed(err)
	}
	defer it.Close()
	b := s.log.db.NewBatch()
	last := floor
	for it.First(); it.Valid() && n < sweepBatch; it.Next() {
		r, err := decodeRecord(s.topic.name, p, seqOf(it.Key()), it.Value())
		if err != nil {
			b.Close()
			return 0, failed(err)
		}
		if !s.keep.Over(p, r.Seq, r.AcceptedAt, s.now) {
			break
		}
		if s.removed+n >= s.limit {
			s.more = true
			break
		}
		s.forget(b, r)
		last = r.Seq
		n++
	}
	if err := it.Error(); err != nil || n == 0 {
		b.Close()
		return 0, failed(err)
	}
	_ = b.DeleteRange(eventKey(nil, s.topic.id, p, floor+1), eventKey(nil, s.topic.id, p, last+1), nil)
	_ = b.Set(floorKey(s.topic.id, p), binary.AppendUvarint(nil, last), nil)
	if err := s.log.commits.applyUnsynced(ctx, b); err != nil {
		return 0, err
	}
	part.floor.Store(last)
	return n, nil
}

// forget removes an event's index entries, and leaves its id behind while the
// deduplication window lasts.
func (s *sweep) forget(b *pebble.Batch, r *eventlog.Record) {
	if s.over(r.AcceptedAt, s.keep.DedupeWindowMS) {
		s.unindex(b, r)
		_ = b.Delete(idKey(nil, s.topic.id, r.ID), nil)
		return
	}
	s.leave(b, r, codec.ContentHash(&r.Event))
}

// unindex removes an event's entries but those of its seq and its id.
func (s *sweep) unindex(b *pebble.Batch, r *eventlog.Record) {
	t := s.topic.id
	_ = b.Delete(timeKey(nil, t, r.TS, r.ID), nil)
	if r.Key != "" {
		_ = b.Delete(keyTimeKey(nil, t, r.Key, r.TS, r.ID), nil)
		_ = b.Delete(keySeqKey(nil, t, r.Key, r.Partition, r.Seq), nil)
	}
}

// leave leaves an event's id behind, and the hash of its content.
func (s *sweep) leave(b *pebble.Batch, r *eventlog.Record, hash [32]byte) {
	s.unindex(b, r)
	left := idEntry{
		location: location{partition: r.Partition, seq: r.Seq},
		remnant:  true, ts: r.TS, acceptedAt: r.AcceptedAt, hash: hash,
	}
	_ = b.Set(idKey(nil, s.topic.id, r.ID), appendIDEntry(nil, left), nil)
	_ = b.Set(remnantKey(nil, s.topic.id, r.AcceptedAt, r.ID), nil, nil)
}

// remnants removes the ids whose window is over, oldest first.
func (s *sweep) remnants(ctx context.Context) error {
	if s.keep.DedupeWindowMS <= 0 {
		return nil
	}
	prefix := topicPrefix(nil, kindRemnant, s.topic.id)
	expired := appendTime(prefix[:len(prefix):len(prefix)], s.now-s.keep.DedupeWindowMS+1)
	_, more, err := s.log.removeInOrder(ctx, prefix, expired, s.limit, func(b *pebble.Batch, rest []byte) error {
		return b.Delete(idKey(nil, s.topic.id, pointAt(rest).ID), nil)
	})
	s.more = s.more || more
	return err
}

// removeInOrder removes up to limit entries between two keys, in bounded
// commits; also removes what belongs to an entry, given the part of its key
// behind the prefix. more says that there are entries left.
func (l *Log) removeInOrder(ctx context.Context, from, to []byte, limit int, also func(b *pebble.Batch, rest []byte) error) (removed int, more bool, err error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return 0, false, failed(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); {
		if removed == limit {
			return removed, true, nil
		}
		b := l.db.NewBatch()
		n := 0
		for ; it.Valid() && n < sweepBatch && removed+n < limit; it.Next() {
			_ = b.Delete(it.Key(), nil)
			if err := also(b, it.Key()[len(from):]); err != nil {
				b.Close()
				return removed, false, err
			}
			n++
		}
		if err := l.commits.applyUnsynced(ctx, b); err != nil {
			return removed, false, err
		}
		removed += n
	}
	return removed, false, failed(it.Error())
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
		// Behind the time stands the mark's key, except for its kind.
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
