package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ListGroups implements eventlog.Groups.
func (l *Log) ListGroups(ctx context.Context, name string) ([]string, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return l.epochs.groups(ctx, t.id)
}

// GroupsOf implements eventlog.Groups.
func (l *Log) GroupsOf(ctx context.Context, names []string) (map[string][]string, error) {
	of := map[string][]string{}
	for _, name := range names {
		groups, err := l.ListGroups(ctx, name)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		of[name] = groups
	}
	return of, nil
}

// LatestEpochs implements eventlog.Groups.
func (l *Log) LatestEpochs(ctx context.Context, name, group string) ([]eventlog.Epoch, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	values, err := l.epochs.latest(ctx, t.id, group)
	if err != nil {
		return nil, err
	}
	epochs := make([]eventlog.Epoch, 0, len(values))
	for _, p := range slices.Sorted(maps.Keys(values)) {
		e, err := decodeEpoch(values[p].value)
		if err != nil {
			return nil, failed(err)
		}
		e.GroupPartition = eventlog.GroupPartition{Topic: name, Group: group, Partition: p}
		epochs = append(epochs, e)
	}
	return epochs, nil
}

// AllEpochs implements eventlog.Groups.
func (l *Log) AllEpochs(ctx context.Context) (all []eventlog.Epoch, err error) {
	topics, err := l.Topics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		groups, err := l.ListGroups(ctx, t.Name)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			epochs, err := l.LatestEpochs(ctx, t.Name, g)
			if err != nil {
				return nil, err
			}
			for _, e := range epochs {
				if e.Deleted {
					continue
				}
				e.Progress = eventlog.Progress{Cursor: e.Progress.Cursor, Settled: e.Progress.Settled, By: e.Progress.By, Unused: e.Progress.Unused}
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// Backlog implements eventlog.Groups, exactly.
func (l *Log) Backlog(ctx context.Context, known []eventlog.Hint) ([]eventlog.Extent, error) {
	topics := map[string][]eventlog.Extent{}
	extents := make([]eventlog.Extent, len(known))
	for i, k := range known {
		if topics[k.Topic] == nil {
			var err error
			if topics[k.Topic], err = l.Extents(ctx, k.Topic); err != nil {
				return nil, err
			}
		}
		extents[i] = topics[k.Topic][k.Partition]
	}
	return extents, nil
}

// identify finds the topic of an epoch, whose partition must exist.
func (l *Log) identify(at eventlog.GroupPartition) (epochID, error) {
	t, err := l.catalog.find(at.Topic)
	if err == nil {
		_, err = l.partition(t, at.Partition)
	}
	if err != nil {
		return epochID{}, err
	}
	return epochID{topic: t.id, partition: at.Partition, group: at.Group}, nil
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
	var wanted []claim
	for i := range epochs {
		e := &epochs[i]
		id, err := l.identify(e.GroupPartition)
		switch {
		case err != nil:
			errs[i] = err
		case e.Number == 0:
			errs[i] = fmt.Errorf("epoch 0 of topic %q, group %q, partition %d: epochs are numbered from 1", e.Topic, e.Group, e.Partition)
		default:
			wanted = append(wanted, claim{id: id, epoch: e, err: &errs[i]})
		}
	}
	if err := l.epochs.writeNew(ctx, wanted); err != nil {
		return err
	}
	// It also waits if none is new, so that the epochs that refused the others are durable.
	return l.epochs.sync(ctx)
}

// SaveEpochs implements eventlog.Groups. The marks and the epochs are one change.
func (l *Log) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	own := make([]claim, len(epochs))
	for i := range epochs {
		id, err := l.identify(epochs[i].GroupPartition)
		if err != nil {
			return err
		}
		own[i] = claim{id: id, epoch: &epochs[i]}
	}
	b := l.db.NewBatch()
	if len(marks) > 0 {
		if err := l.marksTurn.Lock(ctx); err != nil {
			return err
		}
		defer l.marksTurn.Unlock()
		for i := range marks {
			if err := l.saveMark(b, &marks[i]); err != nil {
				return err
			}
		}
	}
	return l.epochs.save(ctx, own, b)
}

// Sync implements eventlog.Groups.
func (l *Log) Sync(ctx context.Context) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	return l.epochs.sync(ctx)
}

// saveMark writes a mark. A renewed mark keeps its older entry in the order of expiry, and the
// sweep finds that this entry no longer counts.
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
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
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
