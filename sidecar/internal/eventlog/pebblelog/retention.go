package pebblelog

import (
	"context"
	"encoding/binary"

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
}

// events removes up to limit expired events from the low end of a partition, in one commit. more
// says that there are others.
func (s *sweep) events(ctx context.Context, p, limit int) (n int, more bool, err error) {
	part, err := s.log.partition(s.topic, p)
	if err != nil {
		return 0, false, err
	}
	b := s.log.db.NewBatch()
	defer b.Close()
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
	raiseFloor(b, s.topic.id, p, floor, last)
	if err := s.log.commits.applyUnsynced(ctx, b); err != nil {
		return 0, false, err
	}
	part.floor.Store(last)
	return n, more, nil
}

// raiseFloor removes a partition's events up to a seq, but not their index entries.
func raiseFloor(b *pebble.Batch, topic uint32, p int, floor, upTo uint64) {
	_ = b.DeleteRange(eventKey(nil, topic, p, floor+1), eventKey(nil, topic, p, upTo+1), nil)
	_ = b.Set(floorKey(topic, p), binary.AppendUvarint(nil, upTo), nil)
}

// forget removes an event's index entries, and keeps its id while the deduplication window lasts.
func (s *sweep) forget(b *pebble.Batch, r *eventlog.Record) {
	if window := s.keep.DedupeWindowMS; window > 0 && r.AcceptedAt <= s.now-window {
		unindex(b, s.topic.id, r)
		_ = b.Delete(idKey(nil, s.topic.id, r.ID), nil)
		return
	}
	s.leave(b, r, codec.ContentHash(&r.Event))
}

// unindex removes an event's entries, except for those of its seq and its id.
func unindex(b *pebble.Batch, topic uint32, r *eventlog.Record) {
	_ = b.Delete(timeKey(nil, topic, r.TS, r.ID), nil)
	if r.Key != "" {
		_ = b.Delete(keyTimeKey(nil, topic, r.Key, r.TS, r.ID), nil)
		_ = b.Delete(keySeqKey(nil, topic, r.Key, r.Partition, r.Seq), nil)
	}
}

// leave removes an event's index entries, and keeps its id and the hash of its content.
func (s *sweep) leave(b *pebble.Batch, r *eventlog.Record, hash [32]byte) {
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
	defer b.Close()
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
