package pebblelog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ListGroups implements eventlog.Groups.
func (l *Log) ListGroups(ctx context.Context, name string) ([]string, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return nil, err
	}
	prefix := topicPrefix(nil, kindEpoch, t.id)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	var groups []string
	for valid := it.First(); valid; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		group, _, ok := textAt(it.Key()[topicPrefixLen:])
		if !ok {
			return nil, failed(fmt.Errorf("a group's key in topic %q is damaged", name))
		}
		groups = append(groups, group)
		valid = it.SeekGE(after(groupPrefix(kindEpoch, t.id, group)))
	}
	if err := it.Error(); err != nil {
		return nil, failed(err)
	}
	return groups, l.commits.barrier(ctx)
}

// LatestEpochs implements eventlog.Groups.
func (l *Log) LatestEpochs(ctx context.Context, name, group string) ([]eventlog.Epoch, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return nil, err
	}
	prefix := groupPrefix(kindEpoch, t.id, group)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	var epochs []eventlog.Epoch
	for it.First(); it.Valid(); it.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := decodeEpoch(it.Value())
		if err != nil {
			return nil, failed(err)
		}
		at := locationAt(it.Key()[len(prefix):])
		e.GroupPartition = eventlog.GroupPartition{Topic: name, Group: group, Partition: at.partition}
		e.Number = at.seq
		epochs = append(epochs, e)
	}
	if err := it.Error(); err != nil {
		return nil, failed(err)
	}
	return epochs, l.commits.barrier(ctx)
}

// latest returns the number of the partition's latest epoch, 0 if it has none.
// The store keeps one epoch per partition: a new one removes the one before in
// the same commit, so fencing needs no more.
func (l *Log) latest(topic uint32, group string, partition int) (uint64, error) {
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound: epochKey(topic, group, partition, 0),
		UpperBound: epochKey(topic, group, partition+1, 0),
	})
	if err != nil {
		return 0, failed(err)
	}
	defer it.Close()
	if it.Last() {
		return seqOf(it.Key()), nil
	}
	return 0, failed(it.Error())
}

// groupTopic finds the topic of an epoch, whose partition must exist.
func (l *Log) groupTopic(at eventlog.GroupPartition) (*topic, error) {
	t, err := l.catalog.find(at.Topic)
	if err != nil {
		return nil, err
	}
	if at.Partition < 0 || at.Partition >= len(t.partitions) {
		return nil, fmt.Errorf("topic %q has partitions 0 to %d, not %d: %w",
			at.Topic, len(t.partitions)-1, at.Partition, eventlog.ErrNotFound)
	}
	return t, nil
}

// TakeEpochs implements eventlog.Groups.
func (l *Log) TakeEpochs(ctx context.Context, epochs []eventlog.Epoch) []error {
	errs := make([]error, len(epochs))
	err := l.enter(ctx)
	if err == nil {
		defer l.leave()
		err = l.takeEpochs(ctx, epochs, errs)
	}
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
	}
	return errs
}

// takeEpochs stores the epochs that are new and sets errs of the others.
func (l *Log) takeEpochs(ctx context.Context, epochs []eventlog.Epoch, errs []error) error {
	x, err := l.applyEpochs(ctx, epochs, errs)
	if x == nil || err != nil {
		return err
	}
	return l.commits.wait(ctx, x)
}

func (l *Log) applyEpochs(ctx context.Context, epochs []eventlog.Epoch, errs []error) (*commit, error) {
	if err := l.groupsTurn.take(ctx); err != nil {
		return nil, err
	}
	defer l.groupsTurn.give()
	b := l.db.NewBatch()
	inBatch := map[eventlog.GroupPartition]uint64{}
	for i := range epochs {
		errs[i] = l.takeEpoch(b, inBatch, &epochs[i])
	}
	if b.Empty() {
		return nil, b.Close()
	}
	return l.commits.apply(ctx, b, nil)
}

func (l *Log) takeEpoch(b *pebble.Batch, inBatch map[eventlog.GroupPartition]uint64, e *eventlog.Epoch) error {
	if e.Number == 0 {
		return fmt.Errorf("epoch 0 of topic %q, group %q, partition %d: epochs are numbered from 1", e.Topic, e.Group, e.Partition)
	}
	t, err := l.groupTopic(e.GroupPartition)
	if err != nil {
		return err
	}
	latest, seen := inBatch[e.GroupPartition]
	if !seen {
		if latest, err = l.latest(t.id, e.Group, e.Partition); err != nil {
			return err
		}
	}
	if latest >= e.Number {
		return fmt.Errorf("epoch %d of topic %q, group %q, partition %d: %w (the latest is %d)",
			e.Number, e.Topic, e.Group, e.Partition, eventlog.ErrEpochTaken, latest)
	}
	if latest > 0 {
		_ = b.Delete(epochKey(t.id, e.Group, e.Partition, latest), nil)
	}
	inBatch[e.GroupPartition] = e.Number
	return b.Set(epochKey(t.id, e.Group, e.Partition, e.Number), appendEpoch(nil, e), nil)
}

// SaveEpochs implements eventlog.Groups: all of it is one commit, or, when one
// epoch is fenced, none of it.
func (l *Log) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	x, err := l.saveEpochs(ctx, epochs, marks)
	if x == nil || err != nil {
		return err
	}
	return l.commits.wait(ctx, x)
}

// Sync implements eventlog.Groups: what SaveEpochs has stored is durable already.
func (l *Log) Sync(ctx context.Context) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	return l.health.err()
}

// saveEpochs returns the commit under way, nil if there is nothing to save.
func (l *Log) saveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) (*commit, error) {
	if err := l.groupsTurn.take(ctx); err != nil {
		return nil, err
	}
	defer l.groupsTurn.give()
	b := l.db.NewBatch()
	for i := range epochs {
		if err := l.saveEpoch(b, &epochs[i]); err != nil {
			b.Close()
			return nil, err
		}
	}
	for i := range marks {
		if err := l.saveMark(b, &marks[i]); err != nil {
			b.Close()
			return nil, err
		}
	}
	if b.Empty() {
		return nil, b.Close()
	}
	return l.commits.apply(ctx, b, nil)
}

func (l *Log) saveEpoch(b *pebble.Batch, e *eventlog.Epoch) error {
	t, err := l.groupTopic(e.GroupPartition)
	if err != nil {
		return err
	}
	latest, err := l.latest(t.id, e.Group, e.Partition)
	if err != nil {
		return err
	}
	if latest != e.Number {
		why := eventlog.ErrFenced
		if latest < e.Number {
			why = eventlog.ErrNotFound // nobody ever took it
		}
		return fmt.Errorf("epoch %d of topic %q, group %q, partition %d: %w (the latest is %d)",
			e.Number, e.Topic, e.Group, e.Partition, why, latest)
	}
	return b.Set(epochKey(t.id, e.Group, e.Partition, e.Number), appendEpoch(nil, e), nil)
}

// saveMark writes the mark. A mark that is renewed keeps its older entry in
// the expiry order; the sweep sees that it no longer counts.
func (l *Log) saveMark(b *pebble.Batch, m *eventlog.Mark) error {
	t, err := l.catalog.find(m.Topic)
	if err != nil {
		return err
	}
	_ = b.Set(markKey(t.id, m.Group, m.ID), binary.AppendVarint(nil, m.ExpiresAt), nil)
	return b.Set(markTimeKey(m.ExpiresAt, t.id, m.Group, m.ID), nil, nil)
}

// Marked implements eventlog.Groups.
func (l *Log) Marked(ctx context.Context, name, group string, ids []string, now int64) ([]bool, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return nil, err
	}
	it, err := l.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	marked := make([]bool, len(ids))
	for i, id := range ids {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !it.SeekPrefixGE(markKey(t.id, group, id)) {
			continue
		}
		expires, err := decodeExpiry(it.Value())
		if err != nil {
			return nil, err
		}
		marked[i] = expires > now
	}
	if err := it.Error(); err != nil {
		return nil, failed(err)
	}
	return marked, l.commits.barrier(ctx)
}

func decodeExpiry(value []byte) (int64, error) {
	d := decoder{rest: value}
	expires := d.varint()
	return expires, failed(d.err)
}
