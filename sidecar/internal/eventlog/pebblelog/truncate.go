package pebblelog

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Truncate removes the events of a partition up to a seq, that one included, and remembers none of
// their ids: the user of the log as a queue has the events somewhere else. Seqs go on from where
// they were. When it returns nil, the removal survives a power cut; a crash before that may bring
// any of the events back, always the newest part of them.
//
// An id that is appended at the same time is either found stored or stored
// again.
func (l *Log) Truncate(ctx context.Context, name string, p int, upTo uint64) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return err
	}
	part, err := l.partition(t, p)
	if err != nil {
		return err
	}
	// A sweep at the same time could remove an id that was published again in
	// between.
	if err := t.sweeping.Lock(ctx); err != nil {
		return err
	}
	defer t.sweeping.Unlock()
	upTo = min(upTo, part.head.Load())
	var last *commit
	for part.floor.Load() < upTo {
		if last, err = l.truncateBatch(ctx, t, p, part, upTo); err != nil {
			return err
		}
	}
	if last == nil {
		return nil
	}
	return l.commits.wait(ctx, last) // commits are synced in order
}

// truncateBatch removes up to sweepBatch events from the low end of a partition
// in one commit, and raises the floor with it.
func (l *Log) truncateBatch(ctx context.Context, t *topic, p int, part *partition, upTo uint64) (*commit, error) {
	floor := part.floor.Load()
	b := l.db.NewBatch()
	last, err := l.truncateInto(b, t, p, floor, upTo)
	if err != nil {
		b.Close()
		return nil, err
	}
	_ = b.DeleteRange(eventKey(nil, t.id, p, floor+1), eventKey(nil, t.id, p, last+1), nil)
	_ = b.Set(floorKey(t.id, p), binary.AppendUvarint(nil, last), nil)
	x, err := l.commits.apply(ctx, b, nil)
	if err != nil {
		return nil, err
	}
	part.floor.Store(last)
	return x, nil
}

// truncateInto removes the index entries of the next events above the floor,
// and returns up to which seq it came.
func (l *Log) truncateInto(b *pebble.Batch, t *topic, p int, floor, upTo uint64) (last uint64, err error) {
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound: eventKey(nil, t.id, p, floor+1),
		UpperBound: eventKey(nil, t.id, p, upTo+1),
	})
	if err != nil {
		return 0, failed(err)
	}
	defer it.Close()
	n := 0
	for it.First(); it.Valid() && n < sweepBatch; it.Next() {
		r, err := decodeRecord(t.name, p, seqOf(it.Key()), it.Value())
		if err != nil {
			return 0, failed(err)
		}
		forgetWhole(b, t.id, r)
		last = r.Seq
		n++
	}
	if n < sweepBatch {
		last = upTo // there may be holes at the end
	}
	return last, failed(it.Error())
}

// forgetWhole removes all of an event's entries but its own.
func forgetWhole(b *pebble.Batch, topic uint32, r *eventlog.Record) {
	_ = b.Delete(idKey(nil, topic, r.ID), nil)
	_ = b.Delete(timeKey(nil, topic, r.TS, r.ID), nil)
	if r.Key != "" {
		_ = b.Delete(keyTimeKey(nil, topic, r.Key, r.TS, r.ID), nil)
		_ = b.Delete(keySeqKey(nil, topic, r.Key, r.Partition, r.Seq), nil)
	}
}
