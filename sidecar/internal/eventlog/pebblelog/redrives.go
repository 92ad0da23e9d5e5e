package pebblelog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// redriveKey is under kindRedrive; the partition, the seq and the letter follow the group.
func redriveKey(topic uint32, r *eventlog.Redrive) []byte {
	b := binary.BigEndian.AppendUint16(groupPrefix(kindRedrive, topic, r.Group), uint16(r.Partition))
	return append(binary.BigEndian.AppendUint64(b, r.Seq), r.Letter...)
}

// redriven is the highest seq of a partition that is to be delivered again, and the group that it is for. It looks at
// one entry of each group that has redrives.
func (l *Log) redriven(t *topic, p int) (seq uint64, group string, err error) {
	prefix := topicPrefix(nil, kindRedrive, t.id)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, "", failed(err)
	}
	defer it.Close()
	for valid := it.First(); valid; {
		name, rest := cutText(it.Key()[len(prefix):])
		if rest == nil {
			return 0, "", failed(fmt.Errorf("a redrive's key: %w", errTruncated))
		}
		of := binary.BigEndian.AppendUint16(groupPrefix(kindRedrive, t.id, name), uint16(p))
		if it.SeekLT(after(of)) && bytes.HasPrefix(it.Key(), of) {
			if at := binary.BigEndian.Uint64(it.Key()[len(of):]); at > seq {
				seq, group = at, name
			}
		}
		valid = it.SeekGE(after(groupPrefix(kindRedrive, t.id, name)))
	}
	return seq, group, failed(it.Error())
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
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return err
	}
	defer l.leave()
	b := l.db.NewBatch()
	for i := range rs {
		_ = write(b, redriveKey(t.id, &rs[i]))
	}
	return l.commitSynced(ctx, b)
}

// commitSynced applies the batch, and returns once it is durable.
func (l *Log) commitSynced(ctx context.Context, b *pebble.Batch) error {
	x, err := l.commits.apply(ctx, &change{entries: b}, nil)
	if err != nil {
		return err
	}
	return l.commits.wait(ctx, x)
}

// ListRedrives implements eventlog.Redrives.
func (l *Log) ListRedrives(ctx context.Context, name, group string, partition, limit int) (rs []eventlog.Redrive, err error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	prefix := groupPrefix(kindRedrive, t.id, group)
	bound := prefix
	if partition >= 0 {
		bound = binary.BigEndian.AppendUint16(prefix[:len(prefix):len(prefix)], uint16(partition))
	}
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: bound, UpperBound: after(bound)}) {
		if err != nil || len(rs) == limit {
			return rs, err
		}
		rest := e.key[len(prefix):]
		rs = append(rs, eventlog.Redrive{
			GroupPartition: eventlog.GroupPartition{Topic: name, Group: group, Partition: int(binary.BigEndian.Uint16(rest))},
			Seq:            binary.BigEndian.Uint64(rest[2:]), Letter: string(rest[10:]),
		})
	}
	return rs, nil
}

// HasRedrives implements eventlog.Redrives.
func (l *Log) HasRedrives(ctx context.Context, name string, rs []eventlog.Redrive) ([]bool, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	has := make([]bool, len(rs))
	for i := range rs {
		if _, has[i], err = l.get(redriveKey(t.id, &rs[i])); err != nil {
			return nil, err
		}
	}
	return has, nil
}

// AddDeadLetterTopic implements eventlog.Redrives.
func (l *Log) AddDeadLetterTopic(ctx context.Context, name, letters string) error {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return err
	}
	defer l.leave()
	b := l.db.NewBatch()
	_ = b.Set(append(topicPrefix(nil, kindLetters, t.id), letters...), nil, nil)
	return l.commitSynced(ctx, b)
}

// DeadLetterTopics implements eventlog.Redrives.
func (l *Log) DeadLetterTopics(ctx context.Context, name string) ([]string, error) {
	list := []string{name + wire.DeadLetterSuffix}
	t, err := l.enterTopic(ctx, name)
	if errors.Is(err, eventlog.ErrNotFound) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.leave()
	prefix := topicPrefix(nil, kindLetters, t.id)
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}) {
		if err != nil {
			return nil, err
		}
		list = append(list, string(e.key[len(prefix):]))
	}
	return list, nil
}

// NamedDeadLetterTopics implements eventlog.Redrives.
func (l *Log) NamedDeadLetterTopics(ctx context.Context) (list []string, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	all := []byte{kindLetters}
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: all, UpperBound: after(all)}) {
		if err != nil {
			return nil, err
		}
		list = append(list, string(e.key[len(topicPrefix(nil, kindLetters, 0)):]))
	}
	slices.Sort(list)
	return slices.Compact(list), nil
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

// Remove implements eventlog.Redrives.
func (l *Log) Remove(ctx context.Context, name string, ids []string, r eventlog.Retention, now int64) (removed int, err error) {
	t, leave, err := l.enterSweep(ctx, name)
	if err != nil {
		return 0, err
	}
	defer leave()
	found := map[string]stored{} // an id may be given twice
	for _, id := range ids {
		rec, err := l.lookup(t, id)
		if err == nil {
			found[id] = rec
		} else if !errors.Is(err, eventlog.ErrNotFound) {
			return 0, err
		}
	}
	s := sweep{log: l, topic: t, keep: r, now: now}
	return len(found), s.remove(ctx, slices.Collect(maps.Values(found)), s.forget)
}
