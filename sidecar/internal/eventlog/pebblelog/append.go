package pebblelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Append implements eventlog.Appender. A batch goes through four steps: claim its ids, decide which
// events are new, give these to the journal and the index with their seqs, and wait for the sync. Only then they
// are readable, and Append returns.
func (l *Log) Append(ctx context.Context, name string, p int, batch []*eventlog.Record) []eventlog.Outcome {
	out := make([]eventlog.Outcome, len(batch))
	if len(batch) == 0 {
		return out
	}
	a := appending{log: l, partition: p, batch: batch, out: out}
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		a.fail(ctx, err)
		return out
	}
	defer l.leave()
	a.topic = t
	a.run(ctx)
	return out
}

// appending is one batch on its way through Append.
type appending struct {
	log       *Log
	topic     *topic
	partition int
	batch     []*eventlog.Record
	out       []eventlog.Outcome
	// release has the due events, by the index of the batch, if this is a Release: the log stores
	// only events that are scheduled as it says.
	release []eventlog.Scheduled
	sizes   []int64 // of their stored values

	fresh   []int    // indexes of the events to store, in order
	later   []int    // and of the events to schedule
	repeats []repeat // events with the id of a new event before them
	// unsynced says that an outcome depends on another append's event that is not synced yet.
	unsynced bool
}

// repeat is an event whose id occurred earlier in the batch.
type repeat struct{ index, first int }

// run takes a batch through Append, and gives its events their outcomes.
func (a *appending) run(ctx context.Context) {
	if err := a.store(ctx); err != nil {
		a.fail(ctx, err)
	}
}

// fail makes an error the outcome of all events.
func (a *appending) fail(ctx context.Context, err error) {
	if ctxErr := ctx.Err(); ctxErr != nil && errors.Is(err, ctxErr) && !errors.Is(err, eventlog.ErrUnavailable) {
		err = unknown(err)
	}
	for i := range a.out {
		a.out[i] = eventlog.Outcome{Err: err}
		// The next try must find the events that this one may have stored.
		a.batch[i].FreshID = false
	}
}

func (a *appending) store(ctx context.Context) error {
	if err := a.log.space.check(); err != nil {
		return err
	}
	part, err := a.log.partition(a.topic, a.partition)
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range a.batch {
		if !r.FreshID {
			ids = append(ids, r.ID)
		}
	}
	release, err := a.topic.claims.acquire(ctx, ids)
	if err != nil {
		return err
	}
	// After the apply a look-up finds the ids, so the claims end here.
	x, err := a.decideAndApply(ctx, part, len(ids) > 0)
	release()
	if err != nil {
		return err
	}
	if err := a.await(ctx, x); err != nil {
		return err
	}
	a.answer()
	return nil
}

// decideAndApply returns the commit under way, nil if nothing is new.
func (a *appending) decideAndApply(ctx context.Context, part *partition, lookUp bool) (*commit, error) {
	if err := a.decide(ctx, lookUp); err != nil {
		return nil, err
	}
	if len(a.fresh)+len(a.later) == 0 {
		return nil, nil
	}
	if err := part.turn.Lock(ctx); err != nil {
		return nil, err
	}
	defer part.turn.Unlock()
	if a.topic.gone.Load() {
		return nil, fmt.Errorf("topic %q: %w", a.topic.name, eventlog.ErrNotFound)
	}
	first := part.last + 1
	last := part.last + uint64(len(a.fresh))
	order := part.order
	ch, err := a.encode(first, &order)
	defer ch.free()
	if err != nil {
		return nil, err
	}
	x, err := a.topic.waiting.noted(a.schedule(ch), func() (*commit, error) {
		return a.log.commits.apply(ctx, ch, func() { part.head.Store(last) })
	})
	if err != nil {
		return nil, err
	}
	part.last, part.order = last, order
	for n, i := range a.fresh {
		r := a.batch[i]
		a.out[i] = eventlog.Outcome{Partition: a.partition, Seq: first + uint64(n), TS: r.TS}
	}
	return x, nil
}

// decide sorts the batch into new events, repeats within the batch, and ids that the topic already
// holds, whose outcome it sets.
func (a *appending) decide(ctx context.Context, lookUp bool) error {
	a.fresh = make([]int, 0, len(a.batch))
	if !lookUp {
		for i := range a.batch {
			a.isNew(i)
		}
		return nil
	}
	ids, err := a.log.lookUpIDs(a.topic)
	if err != nil {
		return err
	}
	defer ids.close()
	var first map[string]int // the new ids
	if len(a.batch) > 1 {
		first = make(map[string]int, len(a.batch))
	}
	for i, r := range a.batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.FreshID {
			a.isNew(i)
			continue
		}
		if j, again := first[r.ID]; again {
			a.repeats = append(a.repeats, repeat{index: i, first: j})
			continue
		}
		found, err := a.stored(ids, i)
		if err != nil {
			return err
		}
		if !found {
			if first != nil {
				first[r.ID] = i
			}
			a.isNew(i)
		}
	}
	return nil
}

// stored sets the outcome of event i if the topic holds its id.
func (a *appending) stored(ids *idLookup, i int) (bool, error) {
	r := a.batch[i]
	e, found, err := ids.find(r.ID)
	if err == nil && a.release != nil {
		return a.released(i, e, found), nil
	}
	for {
		if err != nil || !found {
			return false, err
		}
		if e.due != 0 {
			a.unsynced = true
			return true, a.scheduledBefore(i, e)
		}
		if e.remnant {
			same := codec.ContentHash(&r.Event) == e.hash
			a.out[i] = repeated(r.ID, e.location, e.ts, same)
			return true, nil
		}
		was, err := a.log.event(a.topic, e.location)
		if err == nil {
			a.out[i] = repeated(r.ID, e.location, was.TS, codec.SameContent(&was.Event, &r.Event))
			a.unsynced = a.unsynced || e.seq > a.topic.partitions[e.partition].head.Load()
			return true, nil
		}
		if !errors.Is(err, eventlog.ErrNotFound) {
			return false, err
		}
		// A sweep has removed the event since; read what remains of its id.
		e, found, err = a.log.idEntry(a.topic, r.ID)
		if err == nil && found && e.inLog() {
			return false, fmt.Errorf("%w: id %q points at seq %d, which is missing", eventlog.ErrUnavailable, r.ID, e.seq)
		}
	}
}

// repeated is the outcome of an event whose id is stored already.
func repeated(id string, at location, ts int64, same bool) eventlog.Outcome {
	if !same {
		return eventlog.Outcome{Err: &eventlog.ConflictError{ID: id, Seq: at.seq}}
	}
	return eventlog.Outcome{Partition: at.partition, Seq: at.seq, TS: ts, Duplicate: true}
}

// encode encodes the new events, with seqs from first on, and the entries that find them.
func (a *appending) encode(first uint64, o *order) (*change, error) {
	ch := &change{indexed: a.log.db.NewBatch()}
	if len(a.fresh) == 0 {
		return ch, nil
	}
	ch.events = newRunWriter()
	ch.events.begin(a.topic.id, a.partition, first)
	in := indexer{batch: ch.indexed, topic: a.topic.id}
	for n, i := range a.fresh {
		r := a.batch[i]
		flags := o.take(r)
		if flags&flagOutOfOrder == 0 && a.timed(r) {
			flags |= flagTimedID
		}
		ch.events.add(r, flags)
		in.add(r, location{partition: a.partition, seq: first + uint64(n)}, flags)
	}
	ch.events.end()
	return ch, in.highest.raise(a.log, ch.indexed)
}

// indexer adds the entries of events to a batch, except for those of their runs. Last comes highest.raise.
type indexer struct {
	batch      *pebble.Batch
	topic      uint32
	key, value []byte
	highest    highest
}

func (x *indexer) add(r *eventlog.Record, at location, flags byte) {
	if flags&flagTimedID == 0 {
		x.key, x.value = idKey(x.key[:0], x.topic, r.ID), appendIDEntry(x.value[:0], idEntry{location: at})
		_ = x.batch.Set(x.key, x.value, nil)
	}
	if flags&flagTimeIndexed != 0 {
		x.key = appendPoint(orderPrefix(x.key[:0], x.topic, at.partition), r.TS, r.ID)
		_ = x.batch.Set(x.key, orderValue(x.value[:0], at.seq), nil)
	}
	x.value = appendLocation(x.value[:0], at)
	if flags&flagOutOfOrder != 0 {
		x.key = timeKey(x.key[:0], x.topic, r.TS, r.ID)
		_ = x.batch.Set(x.key, x.value, nil)
		if x.highest == nil {
			x.highest = highest{}
		}
		x.highest.add(nodeOf(x.topic, at.partition, 0, at.seq), eventlog.Point{TS: r.TS, ID: r.ID})
	}
	if r.Key != "" {
		x.key = keyTimeKey(x.key[:0], x.topic, r.Key, r.TS, r.ID)
		_ = x.batch.Set(x.key, x.value, nil)
		x.key = keySeqKey(x.key[:0], x.topic, r.Key, at.partition, at.seq)
		_ = x.batch.Set(x.key, nil, nil)
	}
}

// await returns once every outcome is durable.
func (a *appending) await(ctx context.Context, x *commit) error {
	switch {
	case x != nil: // everything that was applied earlier is durable then too
		return a.log.commits.wait(ctx, x)
	case a.unsynced:
		return a.log.commits.barrier(ctx)
	}
	return nil
}

// answer fills in what the caller gets once everything is durable.
func (a *appending) answer() {
	for _, i := range a.fresh {
		a.batch[i].Partition, a.batch[i].Seq = a.partition, a.out[i].Seq
	}
	for _, again := range a.repeats {
		r, was := a.batch[again.index], a.out[again.first]
		same := codec.SameContent(&a.batch[again.first].Event, &r.Event)
		a.out[again.index] = repeated(r.ID, location{partition: was.Partition, seq: was.Seq}, was.TS, same)
		if same {
			a.out[again.index].DeliverAt = was.DeliverAt
		}
	}
}
