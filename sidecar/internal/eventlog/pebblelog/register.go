package pebblelog

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// register is the latest epoch of each partition of each group, in memory and in the log. Earlier epochs are not
// kept: fencing needs no more. Its writes survive a kill of the process at once, and a power failure once they are
// synced, so that no delivery waits for a sync.
type register struct {
	commits *committer

	// turn makes the check of an epoch's number and the write that depends on it atomic, and guards
	// topics. It is not held during a sync.
	turn   pause.Mutex
	topics map[uint32]map[string]map[int]latestEpoch // by topic, group and partition
}

// latestEpoch is an epoch that is in the log.
type latestEpoch struct {
	number  uint64
	deleted bool
	value   []byte // the document
}

// claim is an epoch that its owner takes or saves.
type claim struct {
	id    epochID
	epoch *eventlog.Epoch
	err   *error // of a take: why this epoch is refused
}

func loadRegister(db *pebble.DB) (*register, error) {
	r := &register{turn: pause.NewMutex(), topics: map[uint32]map[string]map[int]latestEpoch{}}
	all := pebble.IterOptions{LowerBound: []byte{kindEpoch}, UpperBound: []byte{kindEpoch + 1}}
	for entry, err := range entries(context.Background(), db, &all) {
		if err != nil {
			return nil, err
		}
		id, err := decodeEpochKey(entry.key)
		var e eventlog.Epoch
		if err == nil {
			e, err = decodeEpoch(entry.value)
		}
		if err != nil {
			return nil, fmt.Errorf("progress of groups: %w", err)
		}
		r.set(id, latestEpoch{number: e.Number, deleted: e.Deleted, value: bytes.Clone(entry.value)})
	}
	return r, nil
}

// named is the highest seq of a partition that the progress of a group names, and the group. Events up to it were
// there, so it is never given out again.
func (r *register) named(t *topic, p int) (seq uint64, group string, err error) {
	if err := r.turn.Lock(context.Background()); err != nil {
		return 0, "", err
	}
	defer r.turn.Unlock()
	for name, epochs := range r.topics[t.id] {
		latest, there := epochs[p]
		if !there || latest.deleted {
			continue
		}
		e, err := decodeEpoch(latest.value)
		if err != nil {
			return 0, "", failed(err)
		}
		if highest := highestSeq(&e.Progress); highest > seq {
			seq, group = highest, name
		}
	}
	return seq, group, nil
}

func (r *register) set(id epochID, e latestEpoch) {
	groups := r.topics[id.topic]
	if groups == nil {
		groups = map[string]map[int]latestEpoch{}
		r.topics[id.topic] = groups
	}
	if groups[id.group] == nil {
		groups[id.group] = map[int]latestEpoch{}
	}
	groups[id.group][id.partition] = e
}

// groups are the names of a topic's groups, sorted.
func (r *register) groups(ctx context.Context, topic uint32) ([]string, error) {
	if err := r.turn.Lock(ctx); err != nil {
		return nil, err
	}
	defer r.turn.Unlock()
	var names []string
	for name, epochs := range r.topics[topic] {
		if !deleted(epochs) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// deleted says that all of a group's epochs are.
func deleted(epochs map[int]latestEpoch) bool {
	for _, e := range epochs {
		if !e.deleted {
			return false
		}
	}
	return true
}

// forget removes the epochs of a group if all of them are deleted. No other process writes late, so
// the numbers may be taken again.
func (r *register) forget(ctx context.Context, topic uint32, group string) error {
	if err := r.turn.Lock(ctx); err != nil {
		return err
	}
	defer r.turn.Unlock()
	epochs := r.topics[topic][group]
	if !deleted(epochs) {
		return fmt.Errorf("group %q: %w", group, eventlog.ErrFenced)
	}
	b := r.commits.db.NewBatch()
	for p := range epochs {
		_ = b.Delete(epochKey(epochID{topic: topic, partition: p, group: group}), nil)
	}
	if err := r.commits.save(ctx, b); err != nil {
		return err
	}
	delete(r.topics[topic], group)
	return nil
}

// latest is a copy of a group's epochs by partition.
func (r *register) latest(ctx context.Context, topic uint32, group string) (map[int]latestEpoch, error) {
	if err := r.turn.Lock(ctx); err != nil {
		return nil, err
	}
	defer r.turn.Unlock()
	return maps.Clone(r.topics[topic][group]), nil
}

// writeNew writes the epochs whose numbers are new, and sets the errors of the others.
func (r *register) writeNew(ctx context.Context, wanted []claim) error {
	if err := r.turn.Lock(ctx); err != nil {
		return err
	}
	defer r.turn.Unlock()
	var free []claim
	taken := map[epochID]*eventlog.Epoch{} // the latest in free
	for _, c := range wanted {
		latest := r.number(c.id)
		if e := taken[c.id]; e != nil {
			latest = e.Number
		}
		if latest >= c.epoch.Number {
			*c.err = refusal(c.epoch, eventlog.ErrEpochTaken, latest)
			continue
		}
		if (c.epoch.Inherit || c.epoch.Kept) && latest > 0 {
			heir, err := r.heir(c, taken[c.id])
			if err != nil {
				return err
			}
			c.epoch = heir
		}
		taken[c.id] = c.epoch
		free = append(free, c)
	}
	return r.write(ctx, free, r.commits.db.NewBatch())
}

// heir is the claim's epoch with what it has from the epoch before it: before, which the same call
// takes, or else the one in the register.
func (r *register) heir(c claim, before *eventlog.Epoch) (*eventlog.Epoch, error) {
	if before == nil {
		stored, err := decodeEpoch(r.topics[c.id.topic][c.id.group][c.id.partition].value)
		if err != nil {
			return nil, failed(err)
		}
		before = &stored
	}
	heir := *c.epoch
	if heir.Inherit {
		heir.Progress = before.Progress
	}
	if heir.Kept {
		heir.Released = before.Released
	}
	return &heir, nil
}

// save writes epochs that must all be the latest, and the other entries of a batch with them.
func (r *register) save(ctx context.Context, own []claim, b *pebble.Batch) error {
	if err := r.turn.Lock(ctx); err != nil {
		return err
	}
	defer r.turn.Unlock()
	if err := r.owned(own); err != nil {
		return err
	}
	return r.write(ctx, own, b)
}

// owned returns an error unless every epoch is the latest. turn is held, as for the functions
// below.
func (r *register) owned(own []claim) error {
	for _, c := range own {
		switch latest := r.number(c.id); {
		case latest > c.epoch.Number:
			return refusal(c.epoch, eventlog.ErrFenced, latest)
		case latest < c.epoch.Number: // no sidecar ever took it
			return refusal(c.epoch, eventlog.ErrNotFound, latest)
		}
	}
	return nil
}

// number of a partition's latest epoch, 0 if it has none.
func (r *register) number(id epochID) uint64 {
	return r.topics[id.topic][id.group][id.partition].number
}

func refusal(e *eventlog.Epoch, why error, latest uint64) error {
	return fmt.Errorf("epoch %d of topic %q, group %q, partition %d: %w (the latest is %d)",
		e.Number, e.Topic, e.Group, e.Partition, why, latest)
}

// write puts the epochs into the log, all or none, and then into memory.
func (r *register) write(ctx context.Context, claims []claim, b *pebble.Batch) error {
	values := make([][]byte, len(claims))
	for i, c := range claims {
		values[i] = appendEpoch(nil, c.epoch)
		_ = b.Set(epochKey(c.id), values[i], nil)
	}
	if b.Empty() {
		return nil
	}
	if err := r.commits.save(ctx, b); err != nil {
		return err
	}
	for i, c := range claims {
		r.set(c.id, latestEpoch{number: c.epoch.Number, deleted: c.epoch.Deleted, value: values[i]})
	}
	return nil
}

// sync returns once all earlier writes survive a power failure. turn is not held.
func (r *register) sync(ctx context.Context) error {
	err := r.commits.sync(ctx)
	if err != nil && ctx.Err() != nil {
		return unknown(ctx.Err())
	}
	return err
}
