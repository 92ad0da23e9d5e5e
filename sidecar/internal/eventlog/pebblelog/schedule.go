package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A scheduled event has three entries: its id's entry, which says when it is due, the event itself
// under its topic, and an entry in the index of all topics by time. One commit writes them, and the
// commit that puts the event into its partition removes them. The index may have entries of deleted
// topics; Release removes these.

// tally counts a topic's scheduled events. The first call counts the stored events, and later
// changes adjust the count.
type tally struct {
	counted sync.Once
	err     error
	noting  sync.RWMutex // read-held from a commit to its note
	begun   bool         // guarded by noting
	n       atomic.Int64
	bytes   atomic.Int64
}

// tallied is what a commit changes of the topics' scheduled events.
type tallied map[*topic]eventlog.Waiting

// begin precedes the commit, and end follows it: it adds the changes to the topics' tallies if the commit was applied.
func (c tallied) begin() {
	for t := range c {
		t.waiting.noting.RLock()
	}
}

func (c tallied) end(applied bool) {
	for t, delta := range c {
		if applied && t.waiting.begun {
			t.waiting.n.Add(delta.Events)
			t.waiting.bytes.Add(delta.Bytes)
		}
		t.waiting.noting.RUnlock()
	}
}

// count is what is scheduled. The first call iterates over all of it.
func (c *tally) count(db *pebble.DB, topic uint32) (eventlog.Waiting, error) {
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
		var stored eventlog.Waiting
		for it.First(); it.Valid(); it.Next() {
			stored = stored.Plus(eventlog.Waiting{Events: 1, Bytes: int64(len(it.Value()))})
		}
		c.n.Add(stored.Events)
		c.bytes.Add(stored.Bytes)
		c.err = failed(it.Error())
	})
	return eventlog.Waiting{Events: max(c.n.Load(), 0), Bytes: max(c.bytes.Load(), 0)}, c.err
}

// isNew takes an event that the topic does not hold yet.
func (a *appending) isNew(i int) {
	if a.batch[i].DeliverAt != 0 && !a.log.queue {
		a.later = append(a.later, i)
		return
	}
	a.fresh = append(a.fresh, i)
}

// released sets the outcome of an event that is not scheduled as the call of Release says; false:
// the event is to be stored.
func (a *appending) released(i int, e idEntry, found bool) (done bool) {
	w := &a.release[i]
	if found && e.due != 0 && string(dueKey(e, a.topic.id, w.ID)) == w.Place {
		return false
	}
	a.out[i].Err = eventlog.NotFound("event %q of topic %q, due at %d", w.ID, w.Topic, w.DeliverAt)
	return true
}

// scheduledBefore is the outcome of an event whose id is scheduled.
func (a *appending) scheduledBefore(i int, e idEntry) error {
	r := a.batch[i]
	was, _, err := a.log.scheduled(a.topic, e.due, r.ID)
	if err == nil && was == nil {
		err = fmt.Errorf("%w: id %q is scheduled for %d, and its event is missing", eventlog.ErrUnavailable, r.ID, e.due)
	}
	if err != nil {
		return err
	}
	if a.out[i] = repeated(r.ID, location{}, 0, codec.SameContent(&was.Event, &r.Event)); a.out[i].Err == nil {
		a.out[i].DeliverAt = e.due
	}
	return nil
}

// scheduled reads a scheduled event, and the size of its stored value; nil where it is gone.
func (l *Log) scheduled(t *topic, due int64, id string) (r *eventlog.Record, size int, err error) {
	value, found, err := l.get(waitingKey(nil, t.id, due, id))
	if err != nil || !found {
		return nil, 0, err
	}
	r, err = decodeRecord(t.name, 0, 0, value)
	return r, len(value), failed(err)
}

// schedule adds the entries of the events to schedule, and removes those of released events. It
// returns the change of what is scheduled. The size of an event is that of its stored value.
func (a *appending) schedule(ch *change) (delta eventlog.Waiting) {
	if len(a.later) == 0 && a.release == nil {
		return delta
	}
	t := a.topic.id
	if ch.entries == nil {
		ch.entries = a.log.db.NewBatch()
	}
	b := ch.entries
	for _, i := range a.later {
		r := a.batch[i]
		e := idEntry{due: r.DeliverAt, order: a.log.acceptances.Next(time.Now())}
		_ = b.Set(idKey(nil, t, r.ID), appendIDEntry(nil, e), nil)
		value := appendRecord(nil, r, 0)
		delta = delta.Plus(eventlog.Waiting{Events: 1, Bytes: int64(len(value))})
		_ = b.Set(waitingKey(nil, t, r.DeliverAt, r.ID), value, nil)
		_ = b.Set(dueKey(e, t, r.ID), []byte(r.Key), nil)
		a.out[i] = eventlog.Outcome{DeliverAt: r.DeliverAt}
	}
	if a.release == nil {
		return delta
	}
	for _, i := range a.fresh {
		w := &a.release[i]
		_ = b.Delete(waitingKey(nil, t, w.DeliverAt, w.ID), nil)
		_ = b.Delete([]byte(w.Place), nil)
		delta = delta.Minus(eventlog.Waiting{Events: 1, Bytes: a.sizes[i]})
	}
	return delta
}

// maxReleaseBytes bounds the events in memory of one Release, except for the last.
const maxReleaseBytes = 8 << 20

// Release implements eventlog.Scheduler: the commit that stores an event in its partition removes
// what is scheduled.
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
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return errors.Join(err, l.forgetDue(ctx, l.catalog.deleted(name), due))
	}
	batches, size := map[int]int{}, 0 // by partition, in all
	var all []appending
	var at [][]int // the indexes of due
	flush := func() {
		l.appendAll(ctx, all)
		for k := range all {
			for n, i := range at[k] {
				outs[i] = all[k].out[n]
			}
		}
		clear(batches)
		all, at, size = nil, nil, 0
	}
	var gone []eventlog.Scheduled
	for i, w := range due {
		r, stored, err := l.scheduled(t, w.DeliverAt, w.ID)
		if err != nil {
			return err
		}
		if r == nil {
			gone = append(gone, w)
			outs[i].Err = eventlog.NotFound("event %q of topic %q", w.ID, name)
			continue
		}
		r.TS, r.AcceptedAt, r.DeliverAt = now, now, 0
		p := eventlog.PartitionOf(r.Key, r.ID, len(t.partitions))
		k, begun := batches[p]
		if !begun {
			k, batches[p] = len(all), len(all)
			all, at = append(all, appending{log: l, topic: t, partition: p}), append(at, nil)
		}
		a := &all[k]
		a.batch, a.release, a.out = append(a.batch, r), append(a.release, w), append(a.out, eventlog.Outcome{})
		a.sizes, at[k] = append(a.sizes, int64(stored)), append(at[k], i)
		if size += r.Size(); size >= maxReleaseBytes {
			flush()
		}
	}
	flush()
	return l.forgetDue(ctx, t, gone)
}

// forgetDue removes the index entries of events that are gone.
func (l *Log) forgetDue(ctx context.Context, t *topic, gone []eventlog.Scheduled) error {
	if t == nil || len(gone) == 0 {
		return nil
	}
	// While the claims are held no other call schedules the same ids.
	ids := make([]string, len(gone))
	for i, w := range gone {
		ids[i] = w.ID
	}
	release, err := t.claims.acquire(ctx, ids, true)
	if err != nil {
		return err
	}
	defer release()
	b := l.db.NewBatch()
	for _, w := range gone {
		_, found, err := l.get(waitingKey(nil, t.id, w.DeliverAt, w.ID))
		if err != nil {
			return err
		}
		if !found {
			_ = b.Delete([]byte(w.Place), nil)
		}
	}
	return l.commits.applyUnsynced(ctx, b)
}

// Due implements eventlog.Scheduler. One sidecar has all slots.
func (l *Log) Due(ctx context.Context, _ []int, last *eventlog.Scheduled, now int64, limit int) (
	due []eventlog.Scheduled, next int64, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer l.leave()
	topics := l.catalog.byID()
	from := []byte{kindDue}
	if last != nil {
		from = append([]byte(last.Place), 0)
	}
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: from, UpperBound: []byte{kindDue + 1}}) {
		if err != nil || len(due) == limit {
			return due, 0, err
		}
		at := timeAt(e.key[1:])
		if at > now {
			return due, at, nil
		}
		if t := topics[binary.BigEndian.Uint32(e.key[17:])]; t != nil { // else it was created since
			due = append(due, eventlog.Scheduled{DeliverAt: at, Topic: t.name, ID: string(e.key[21:]), Key: string(e.value), Place: string(e.key)})
		}
	}
	return due, 0, nil
}

// ListScheduled implements eventlog.Scheduler.
func (l *Log) ListScheduled(ctx context.Context, name string, last *eventlog.Point, limit int) (list []eventlog.Scheduled, err error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	prefix := topicPrefix(nil, kindWaiting, t.id)
	from := prefix
	if last != nil {
		from = append(waitingKey(nil, t.id, last.TS, last.ID), 0)
	}
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: from, UpperBound: after(prefix)}) {
		if err != nil {
			return nil, err
		}
		if len(list) == limit {
			break
		}
		at := pointAt(e.key[len(prefix):])
		_, key, err := identityOf(e.value)
		if err != nil {
			return nil, failed(err)
		}
		list = append(list, eventlog.Scheduled{Topic: name, ID: at.ID, Key: key, DeliverAt: at.TS})
	}
	return list, l.commits.barrier(ctx) // the list has only durable events
}

// CountScheduled implements eventlog.Scheduler.
func (l *Log) CountScheduled(ctx context.Context, name string) (eventlog.Waiting, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return eventlog.Waiting{}, err
	}
	defer l.leave()
	return t.waiting.count(l.db, t.id)
}

// CountSlots implements eventlog.Scheduler. It seeks once for each topic that has scheduled events.
func (l *Log) CountSlots(ctx context.Context, _ []int) (map[string]eventlog.Waiting, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	counts := map[string]eventlog.Waiting{}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindWaiting}, UpperBound: []byte{kindWaiting + 1}})
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	topics := l.catalog.byID()
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
	t, leave, err := l.enterSweep(ctx, name) // else it may be deleted meanwhile
	if err != nil {
		return err
	}
	defer leave()
	release, err := t.claims.acquire(ctx, []string{id}, true)
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
	e, found, err := l.idEntry(t, id)
	if err == nil && (!found || e.due == 0) {
		err = eventlog.NotFound("scheduled event %q of topic %q", id, t.name)
	}
	if err != nil {
		return nil, err
	}
	b := l.db.NewBatch()
	_ = b.Delete(idKey(nil, t.id, id), nil)
	_ = b.Delete(waitingKey(nil, t.id, e.due, id), nil)
	_ = b.Delete(dueKey(e, t.id, id), nil)
	_, size, err := l.scheduled(t, e.due, id)
	if err != nil {
		return nil, err
	}
	one := tallied{t: {Events: -1, Bytes: -int64(size)}}
	one.begin()
	x, err := l.commits.apply(ctx, &change{entries: b}, nil)
	one.end(err == nil)
	return x, err
}
