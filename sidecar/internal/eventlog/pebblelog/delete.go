package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ofTopic are the kinds of entries that go with a topic.
const ofTopic = string(kindEvent) + string(kindID) + string(kindTime) + string(kindOrder) + string(kindNode) +
	string(kindKeyTime) + string(kindKeySeq) + string(kindRemnant) + string(kindMark) + string(kindGiven) + string(kindRedrive) +
	string(kindLetters) + string(kindWaiting)

// DeleteTopic implements eventlog.Deleter, by one commit. The catalog's entry stays, and so do the
// partitions' floors, which say where seqs go on.
func (l *Log) DeleteTopic(ctx context.Context, name string) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	if err := l.catalog.creating.Lock(ctx); err != nil {
		return err
	}
	defer l.catalog.creating.Unlock()
	t, err := l.catalog.find(name)
	if err != nil {
		return err
	}
	release, err := l.halt(ctx, t)
	defer release()
	if err != nil {
		return err
	}
	b := l.db.NewBatch()
	_ = b.Set(catalogKey(name), t.value(topicDeleted, ""), nil)
	for _, kind := range []byte(ofTopic) {
		prefix := topicPrefix(nil, kind, t.id)
		_ = b.DeleteRange(prefix, after(prefix), nil)
	}
	for p := range t.partitions {
		_ = b.Set(floorKey(t.id, p), binary.AppendUvarint(nil, t.partitions[p].last), nil)
	}
	// By then earlier commits are durable, and so readable.
	x, err := l.commits.apply(ctx, &change{entries: b}, func() {
		t.gone.Store(true)
		t.waiting.n.Store(0)
		for p := range t.partitions {
			t.partitions[p].floor.Store(t.partitions[p].last)
		}
	})
	if err != nil {
		return err
	}
	for p := range t.partitions {
		t.partitions[p].order = order{}
	}
	l.reclaim.wake.Set()
	<-x.done // also if ctx ends: the commit cannot be cancelled
	return x.err
}

// halt waits until no append and no sweep of the topic runs, and prevents new ones until release,
// which the caller must call.
func (l *Log) halt(ctx context.Context, t *topic) (release func(), err error) {
	var held []pause.Mutex
	release = func() {
		for _, turn := range held {
			turn.Unlock()
		}
	}
	turns := []pause.Mutex{t.sweeping}
	for p := range t.partitions {
		part, err := l.partition(t, p)
		if err != nil {
			return release, err
		}
		turns = append(turns, part.turn)
	}
	for _, turn := range turns {
		if err := turn.Lock(ctx); err != nil {
			return release, err
		}
		held = append(held, turn)
	}
	return release, nil
}

// Gone implements eventlog.Deleter.
func (l *Log) Gone(ctx context.Context, topics []string, groups []eventlog.GroupName) ([]string, []eventlog.GroupName, error) {
	if err := l.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer l.leave()
	var deleted []string
	for _, name := range topics {
		if l.catalog.deleted(name) != nil {
			deleted = append(deleted, name)
		}
	}
	of := map[string][]string{}
	var missing []eventlog.GroupName
	for _, g := range groups {
		if _, read := of[g.Topic]; !read {
			names, err := l.ListGroups(ctx, g.Topic)
			if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
				return nil, nil, err
			}
			of[g.Topic] = names
		}
		if !slices.Contains(of[g.Topic], g.Group) {
			missing = append(missing, g)
		}
	}
	return deleted, missing, nil
}

// ForgetGroup implements eventlog.Deleter. It removes the marks first: without its epochs a group
// could not be found again.
func (l *Log) ForgetGroup(ctx context.Context, name, group string) error {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return err
	}
	defer l.leave()
	b := l.db.NewBatch()
	marks := groupPrefix(kindMark, t.id, group)
	_ = b.DeleteRange(marks, after(marks), nil)
	redrives := groupPrefix(kindRedrive, t.id, group)
	_ = b.DeleteRange(redrives, after(redrives), nil)
	if err := l.commitSynced(ctx, b); err != nil {
		return err
	}
	if err := l.epochs.forget(ctx, t.id, group); err != nil {
		return err
	}
	return l.epochs.sync(ctx)
}

// Erase implements eventlog.Deleter. The disk keeps the bytes until their segment is rewritten, which is soon once
// it is closed (reclaim.go).
func (l *Log) Erase(ctx context.Context, name string, p int, seqs []uint64, r eventlog.Retention, now int64) (removed int, err error) {
	t, leave, err := l.enterSweep(ctx, name)
	if err != nil {
		return 0, err
	}
	defer leave()
	part, err := l.partition(t, p)
	if err != nil {
		return 0, err
	}
	var events []stored
	for _, seq := range seqs {
		if seq > part.head.Load() {
			continue
		}
		rec, err := l.event(t, location{partition: p, seq: seq})
		if err == nil {
			events = append(events, rec)
		} else if !errors.Is(err, eventlog.ErrNotFound) {
			return 0, err
		}
	}
	s := sweep{log: l, topic: t, keep: r, now: now, erase: true}
	return len(events), s.remove(ctx, events, func(b *pebble.Batch, rec stored) { s.leave(b, rec, [32]byte{}) })
}

// remove removes events anywhere in their partitions, and returns once that is durable. forget
// removes their index entries. The highest seq of a partition tells its head after a restart: where
// that event goes, kindGiven keeps the seq.
func (s *sweep) remove(ctx context.Context, events []stored, forget func(*pebble.Batch, stored)) error {
	b := s.log.db.NewBatch()
	for _, r := range events {
		if err := s.clear(r); err != nil {
			return err
		}
		forget(b, r)
		if r.Seq == s.topic.partitions[r.Partition].head.Load() {
			_ = b.Set(givenKey(s.topic.id, r.Partition), binary.AppendUvarint(nil, r.Seq), nil)
		}
	}
	s.cleared(b)
	if err := s.log.commitSynced(ctx, b); err != nil {
		return err
	}
	return s.tidy(ctx)
}
