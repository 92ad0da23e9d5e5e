package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A scheduled event is three entries: its id's, which says when it is due, the
// event itself under its topic, and an index of all topics by time. They are
// written by one commit, and go with the commit that puts the event into its
// partition. The index may have what is gone with its topic; Release removes it.

// tally counts a topic's scheduled events: the stored ones when it is first asked, and then each
// change.
type tally struct {
	counted sync.Once
	err     error
	noting  sync.RWMutex // read-held from a commit to its note
	begun   bool         // guarded by noting
	n       atomic.Int64
}

// noted adds delta to the tally for what commit applies.
func (c *tally) noted(delta int, commit func() (*commit, error)) (*commit, error) {
	if delta == 0 {
		return commit()
	}
	c.noting.RLock()
	defer c.noting.RUnlock()
	x, err := commit()
	if err == nil && c.begun {
		c.n.Add(int64(delta))
	}
	return x, err
}

// count is how many there are. The first call goes through all of them.
func (c *tally) count(db *pebble.DB, topic uint32) (int64, error) {
	c.counted.Do(func() {
		prefix := topicPrefix(nil, kindWaiting, topic)
		c.noting.Lock()
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		c.begun = true
		c.noting.Unlock()
		if err != nil {
			c.err = failed(err)
			return
		}
		defer it.Close()
		n := int64(0)
		for it.First(); it.Valid(); it.Next() {
			n++
		}
		c.n.Add(n)
		c.err = failed(it.Error())
	})
	return max(c.n.Load(), 0), c.err
}

// isNew takes an event that the topic does not hold yet.
func (a *appending) isNew(i int) {
	if a.batch[i].DeliverAt != 0 && !a.log.queue {
		a.later = append(a.later, i)
		return
	}
	a.fresh = append(a.fresh, i)
}

// released gives an event that is not scheduled as it is to be released its
// outcome; false: it goes into the log.
func (a *appending) released(i int, e idEntry, found bool) (done bool) {
	w := &a.release[i]
	if found && e.due == w.DeliverAt {
		return false
	}
	a.out[i].Err = fmt.Errorf("event %q of topic %q, due at %d: %w", w.ID, w.Topic, w.DeliverAt, eventlog.ErrNotFound)
	return true
}

// scheduledBefore is the outcome of an event whose id is scheduled.
func (a *appending) scheduledBefore(i int, e idEntry) error {
	r := a.batch[i]
	was, err := a.log.scheduled(a.topic, e.due, r.ID)
	if err != nil {
		return err
	}
	if a.out[i] = repeated(r.ID, location{}, 0, codec.SameContent(&was.Event, &r.Event)); a.out[i].Err == nil {
		a.out[i].DeliverAt = e.due
	}
	return nil
}

// scheduled reads a scheduled event.
func (l *Log) scheduled(t *topic, due int64, id string) (*eventlog.Record, error) {
	value, found, err := l.get(waitingKey(nil, t.id, due, id))
	if err == nil && !found {
		err = fmt.Errorf("%w: id %q is scheduled for %d, and its event is missing", eventlog.ErrUnavailable, id, due)
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(t.name, 0, 0, value)
	return r, failed(err)
}

// schedule adds the entries of the events to schedule, and removes those of the
// events that are put into the log. It returns by how many there are more.
func (a *appending) schedule(b *pebble.Batch) (delta int) {
	t := a.topic.id
	for _, i := range a.later {
		r := a.batch[i]
		_ = b.Set(idKey(nil, t, r.ID), appendIDEntry(nil, idEntry{due: r.DeliverAt}), nil)
		_ = b.Set(waitingKey(nil, t, r.DeliverAt, r.ID), appendRecord(nil, r), nil)
		_ = b.Set(dueKey(nil, r.DeliverAt, t, r.ID), []byte(r.Key), nil)
		a.out[i] = eventlog.Outcome{DeliverAt: r.DeliverAt}
	}
	if a.release == nil {
		return len(a.later)
	}
	for _, i := range a.fresh {
		w := &a.release[i]
		_ = b.Delete(waitingKey(nil, t, w.DeliverAt, w.ID), nil)
		_ = b.Delete(dueKey(nil, w.DeliverAt, t, w.ID), nil)
	}
	return -len(a.fresh)
}

// maxReleaseBytes bounds the events in memory of one Release, except for the last.
const maxReleaseBytes = 8 << 20

// Release implements eventlog.Scheduler: the commit that stores an event in its
// partition removes what is scheduled.
func (l *Log) Release(ctx context.Context, name string, due []eventlog.Scheduled, now int64) []eventlog.Outcome {
	outs := make([]eventlog.Outcome, len(due))
	if err := l.release(ctx, name, due, now, outs); err != nil {
		for i := range outs {
			outs[i] = eventlog.Outcome{Err: err}
		}
	}
	return outs
}

func (l *Log) release(ctx context.Context, name string, due []eventlog.Scheduled, now int64, outs []eventlog.Outcome) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	t, err := l.catalog.find(name)
	l.leave() // each append enters for itself
	if err != nil {
		return errors.Join(err, l.forgetDue(ctx, name, due))
	}
	byPartition, places, size := map[int]*appending{}, map[int][]int{}, 0
	flush := func() {
		for p, a := range byPartition {
			l.begin(ctx, name, a)
			for n, i := range places[p] {
				outs[i] = a.out[n]
			}
		}
		clear(byPartition)
		clear(places)
		size = 0
	}
	var gone []eventlog.Scheduled
	for i, w := range due {
		r, err := l.dueRecord(t, &w)
		if err != nil {
			return err
		}
		if r == nil {
			gone = append(gone, w)
			outs[i].Err = fmt.Errorf("event %q of topic %q: %w", w.ID, name, eventlog.ErrNotFound)
			continue
		}
		r.TS, r.AcceptedAt, r.DeliverAt = now, now, 0
		p := eventlog.PartitionOf(r.Key, r.ID, len(t.partitions))
		a := byPartition[p]
		if a == nil {
			a = &appending{log: l, partition: p}
			byPartition[p] = a
		}
		a.batch, a.release, a.out = append(a.batch, r), append(a.release, w), append(a.out, eventlog.Outcome{})
		places[p] = append(places[p], i)
		if size += r.Size(); size >= maxReleaseBytes {
			flush()
		}
	}
	flush()
	return l.forgetDue(ctx, name, gone)
}

// dueRecord reads an event that is due; nil where it is gone.
func (l *Log) dueRecord(t *topic, w *eventlog.Scheduled) (*eventlog.Record, error) {
	if err := l.enter(context.Background()); err != nil {
		return nil, err
	}
	defer l.leave()
	value, found, err := l.get(waitingKey(nil, t.id, w.DeliverAt, w.ID))
	if err != nil || !found {
		return nil, err
	}
	r, err := decodeRecord(t.name, 0, 0, value)
	return r, failed(err)
}

// forgetDue removes what the index has of events that are gone.
func (l *Log) forgetDue(ctx context.Context, name string, gone []eventlog.Scheduled) error {
	if err := l.enter(ctx); err != nil || len(gone) == 0 {
		if err == nil {
			l.leave()
		}
		return err
	}
	defer l.leave()
	l.catalog.mu.RLock()
	t := l.catalog.topics[name]
	l.catalog.mu.RUnlock()
	if t == nil {
		return nil
	}
	for _, w := range gone {
		// While the claim is held no other call schedules the same id.
		release, err := t.claims.acquire(ctx, []string{w.ID})
		if err != nil {
			return err
		}
		_, found, err := l.get(waitingKey(nil, t.id, w.DeliverAt, w.ID))
		if err == nil && !found {
			b := l.db.NewBatch()
			_ = b.Delete(dueKey(nil, w.DeliverAt, t.id, w.ID), nil)
			err = l.commits.applyUnsynced(ctx, b)
		}
		if release(); err != nil {
			return err
		}
	}
	return nil
}

// Due implements eventlog.Scheduler. One sidecar has all slots.
func (l *Log) Due(ctx context.Context, _ []int, last *eventlog.Scheduled, now int64, limit int) (due []eventlog.Scheduled, next int64, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer l.leave()
	names := map[uint32]string{}
	l.catalog.mu.RLock()
	for name, t := range l.catalog.topics {
		names[t.id] = name
	}
	l.catalog.mu.RUnlock()
	from := []byte{kindDue}
	if last != nil {
		from = append([]byte(last.Place), 0)
	}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{kindDue + 1}})
	if err != nil {
		return nil, 0, failed(err)
	}
	defer it.Close()
	for it.First(); it.Valid() && len(due) < limit; it.Next() {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		key := it.Key()
		w := eventlog.Scheduled{DeliverAt: timeAt(key[1:]), Topic: names[binary.BigEndian.Uint32(key[9:])], ID: string(key[13:]), Key: string(it.Value()), Place: string(key)}
		if w.DeliverAt > now {
			next = w.DeliverAt
			break
		}
		due = append(due, w)
	}
	return due, next, failed(it.Error())
}

// ListScheduled implements eventlog.Scheduler.
func (l *Log) ListScheduled(ctx context.Context, name string, last *eventlog.Point, limit int) (list []eventlog.Scheduled, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return nil, err
	}
	prefix := topicPrefix(nil, kindWaiting, t.id)
	from := prefix
	if last != nil {
		from = append(waitingKey(nil, t.id, last.TS, last.ID), 0)
	}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(prefix)})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	for it.First(); it.Valid() && len(list) < limit; it.Next() {
		at := pointAt(it.Key()[len(prefix):])
		_, key, err := identityOf(it.Value())
		if err != nil {
			return nil, failed(err)
		}
		list = append(list, eventlog.Scheduled{Topic: name, ID: at.ID, Key: key, DeliverAt: at.TS})
	}
	// The list has only durable events.
	return list, errors.Join(failed(it.Error()), l.commits.barrier(ctx))
}

// CountScheduled implements eventlog.Scheduler.
func (l *Log) CountScheduled(ctx context.Context, name string) (int64, error) {
	if err := l.enter(ctx); err != nil {
		return 0, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return 0, err
	}
	return t.waiting.count(l.db, t.id)
}

// CountSlots implements eventlog.Scheduler. It looks only once for each topic
// that has any.
func (l *Log) CountSlots(ctx context.Context, _ []int) (map[string]int64, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	counts := map[string]int64{}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindWaiting}, UpperBound: []byte{kindWaiting + 1}})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	l.catalog.mu.RLock()
	topics := map[uint32]*topic{}
	for _, t := range l.catalog.topics {
		topics[t.id] = t
	}
	l.catalog.mu.RUnlock()
	for valid := it.First(); valid; {
		id := binary.BigEndian.Uint32(it.Key()[1:])
		if t := topics[id]; t != nil {
			if counts[t.name], err = t.waiting.count(l.db, id); err != nil {
				return nil, err
			}
		}
		valid = it.SeekGE(after(topicPrefix(nil, kindWaiting, id)))
	}
	return counts, failed(it.Error())
}

// Cancel implements eventlog.Scheduler.
func (l *Log) Cancel(ctx context.Context, name, id string) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return err
	}
	if err := t.sweeping.Lock(ctx); err != nil { // else it may be deleted meanwhile
		return err
	}
	defer t.sweeping.Unlock()
	release, err := t.claims.acquire(ctx, []string{id})
	if err != nil {
		return err
	}
	x, err := l.cancel(ctx, t, id)
	release()
	if err != nil {
		return err
	}
	return l.commits.wait(ctx, x)
}

func (l *Log) cancel(ctx context.Context, t *topic, id string) (*commit, error) {
	e, found, err := l.idEntry(t.id, id)
	if err == nil && (!found || e.due == 0) {
		err = fmt.Errorf("scheduled event %q of topic %q: %w", id, t.name, eventlog.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	b := l.db.NewBatch()
	_ = b.Delete(idKey(nil, t.id, id), nil)
	_ = b.Delete(waitingKey(nil, t.id, e.due, id), nil)
	_ = b.Delete(dueKey(nil, e.due, t.id, id), nil)
	return t.waiting.noted(-1, func() (*commit, error) { return l.commits.apply(ctx, b, nil) })
}
