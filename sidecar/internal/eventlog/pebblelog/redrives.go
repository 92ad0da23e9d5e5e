package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// redriveKey is under kindRedrive; the partition, the seq and the letter follow the group.
func redriveKey(topic uint32, r *eventlog.Redrive) []byte {
	b := binary.BigEndian.AppendUint16(groupPrefix(kindRedrive, topic, r.Group), uint16(r.Partition))
	return append(binary.BigEndian.AppendUint64(b, r.Seq), r.Letter...)
}

// AddRedrives implements eventlog.Redrives.
func (l *Log) AddRedrives(ctx context.Context, name string, rs []eventlog.Redrive) error {
	return l.writeRedrives(ctx, name, rs, func(b *pebble.Batch, key []byte) error { return b.Set(key, nil, nil) })
}

// EndRedrives implements eventlog.Redrives.
func (l *Log) EndRedrives(ctx context.Context, name string, rs []eventlog.Redrive) error {
	return l.writeRedrives(ctx, name, rs, func(b *pebble.Batch, key []byte) error { return b.Delete(key, nil) })
}

func (l *Log) writeRedrives(ctx context.Context, name string, rs []eventlog.Redrive, write func(b *pebble.Batch, key []byte) error) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil || len(rs) == 0 {
		return err
	}
	b := l.db.NewBatch()
	for i := range rs {
		_ = write(b, redriveKey(t.id, &rs[i]))
	}
	return l.commitSynced(ctx, b)
}

// commitSynced takes the batch over, and returns once it is durable.
func (l *Log) commitSynced(ctx context.Context, b *pebble.Batch) error {
	x, err := l.commits.apply(ctx, b, nil)
	if err != nil {
		return err
	}
	return l.commits.wait(ctx, x)
}

// ListRedrives implements eventlog.Redrives.
func (l *Log) ListRedrives(ctx context.Context, name, group string, partition, limit int) (rs []eventlog.Redrive, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return nil, err
	}
	prefix := groupPrefix(kindRedrive, t.id, group)
	bound := prefix
	if partition >= 0 {
		bound = binary.BigEndian.AppendUint16(prefix[:len(prefix):len(prefix)], uint16(partition))
	}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: bound, UpperBound: after(bound)})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	for it.First(); it.Valid() && len(rs) < limit; it.Next() {
		rest := it.Key()[len(prefix):]
		rs = append(rs, eventlog.Redrive{
			GroupPartition: eventlog.GroupPartition{Topic: name, Group: group, Partition: int(binary.BigEndian.Uint16(rest))},
			Seq:            binary.BigEndian.Uint64(rest[2:]), Letter: string(rest[10:]),
		})
	}
	return rs, failed(it.Error())
}

// HasRedrives implements eventlog.Redrives.
func (l *Log) HasRedrives(ctx context.Context, name string, rs []eventlog.Redrive) ([]bool, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return nil, err
	}
	has := make([]bool, len(rs))
	for i := range rs {
		if _, has[i], err = l.get(redriveKey(t.id, &rs[i])); err != nil {
			return nil, err
		}
	}
	return has, nil
}

// LookupEach implements eventlog.Redrives.
func (l *Log) LookupEach(ctx context.Context, name string, ids []string) ([]*eventlog.Record, error) {
	recs := make([]*eventlog.Record, len(ids))
	for i, id := range ids {
		rec, err := l.Lookup(ctx, name, id)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		recs[i] = rec
	}
	return recs, nil
}

// Remove implements eventlog.Redrives. The highest seq of a partition tells its
// head after a restart: where that event goes, kindGiven keeps the seq.
func (l *Log) Remove(ctx context.Context, name string, ids []string, r eventlog.Retention, now int64) (removed int, err error) {
	if err := l.enter(ctx); err != nil {
		return 0, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return 0, err
	}
	if err := t.sweeping.Lock(ctx); err != nil {
		return 0, err
	}
	defer t.sweeping.Unlock()
	s := sweep{log: l, topic: t, keep: r, now: now}
	b := l.db.NewBatch()
	done := map[string]bool{} // an id may be given twice
	for _, id := range ids {
		gone, err := s.remove(b, id)
		if err != nil {
			b.Close()
			return 0, err
		}
		if gone && !done[id] {
			done[id] = true
			removed++
		}
	}
	return removed, l.commitSynced(ctx, b)
}

// remove removes an event; false where there is none.
func (s *sweep) remove(b *pebble.Batch, id string) (bool, error) {
	e, found, err := s.log.idEntry(s.topic.id, id)
	if err != nil || !found || !e.inLog() {
		return false, err
	}
	part, err := s.log.partition(s.topic, e.partition)
	if err != nil || e.seq > part.head.Load() {
		return false, err
	}
	r, err := s.log.event(s.topic, e.location)
	if errors.Is(err, eventlog.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_ = b.Delete(eventKey(nil, s.topic.id, r.Partition, r.Seq), nil)
	s.forget(b, r)
	if r.Seq == part.head.Load() {
		_ = b.Set(givenKey(s.topic.id, r.Partition), binary.AppendUvarint(nil, r.Seq), nil)
	}
	return true, nil
}
