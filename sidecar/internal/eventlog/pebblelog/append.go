package pebblelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Append implements eventlog.Appender.
func (l *Log) Append(ctx context.Context, name string, p int, batch []*eventlog.Record) []eventlog.Outcome {
	one := []eventlog.Batch{{Topic: name, Partition: p, Records: batch}}
	l.AppendAll(ctx, one)
	return one[0].Outcomes
}

// AppendAll implements eventlog.GroupAppender. A batch goes through four steps: claim its ids, decide which events
// are new, give these to the journal and the index with their seqs, and wait for the sync. The batches share the last
// two. Only then their events are readable, and AppendAll returns.
func (l *Log) AppendAll(ctx context.Context, batches []eventlog.Batch) {
	all := make([]appending, len(batches))
	entered := l.enter(ctx)
	if entered == nil {
		defer l.leave()
	}
	for i := range batches {
		b := &batches[i]
		b.Outcomes = make([]eventlog.Outcome, len(b.Records))
		all[i] = appending{log: l, partition: b.Partition, batch: b.Records, out: b.Outcomes, err: entered}
		if entered == nil {
			all[i].topic, all[i].err = l.catalog.find(b.Topic)
		}
	}
	l.appendAll(ctx, all)
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

	part *partition
	ids  []string // that have to be looked up

	fresh   []int    // indexes of the events to store, in order
	later   []int    // and of the events to schedule
	repeats []repeat // events with the id of a new event before them
	// unsynced says that an outcome depends on another append's event that is not synced yet.
	unsynced bool

	waits  bool    // for a commit
	commit *commit // that has its new events
	err    error   // the outcome of all events

	// From join to apply.
	unclaim     func()
	first, last uint64 // seqs of its new events
	order       order  // of the partition, behind them
}

// repeat is an event whose id occurred earlier in the batch.
type repeat struct{ index, first int }

// appendAll takes batches through Append, and gives their events their outcomes.
func (l *Log) appendAll(ctx context.Context, all []appending) {
	rest := 0
	for i := range all {
		if all[i].begin(); all[i].waits {
			rest++
		}
	}
	for rest > 0 {
		rest = l.appendSome(ctx, all, rest)
	}
	for i := range all {
		a := &all[i]
		if a.err == nil {
			a.err = a.await(ctx)
		}
		if a.err != nil {
			a.fail(ctx, a.err)
			continue
		}
		a.answer()
	}
}

// appendSome applies those batches that wait by one commit, and returns how many wait on, since others hold what they
// need. It waits itself only while it holds nothing, so there is no deadlock.
func (l *Log) appendSome(ctx context.Context, all []appending, waiting int) (rest int) {
	g := groupCommit{log: l, members: make([]*appending, 0, waiting)}
	for i := range all {
		a := &all[i]
		if !a.waits {
			continue
		}
		var decided bool
		decided, a.err = g.join(ctx, a)
		if a.waits = !decided && a.err == nil; a.waits {
			rest++
		}
	}
	g.apply(ctx)
	return rest
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

// begin finds out what the batch needs.
func (a *appending) begin() {
	if a.err == nil {
		a.err = a.log.space.check()
	}
	if a.err == nil {
		a.part, a.err = a.log.partition(a.topic, a.partition)
	}
	a.waits = a.err == nil
	for _, r := range a.batch {
		if !r.FreshID {
			a.ids = append(a.ids, r.ID)
		}
	}
}

// decide sorts the batch into new events, repeats within the batch, and ids that the topic already
// holds, whose outcome it sets.
func (a *appending) decide(ctx context.Context) error {
	a.fresh, a.later, a.repeats = make([]int, 0, len(a.batch)), nil, nil
	if len(a.ids) == 0 {
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

// indexer adds the entries of events to a batch, except for those of their runs and of the tree of events out of order.
type indexer struct {
	batch      *pebble.Batch
	topic      uint32
	key, value []byte
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
	}
	if r.Key != "" {
		x.key = keyTimeKey(x.key[:0], x.topic, r.Key, r.TS, r.ID)
		_ = x.batch.Set(x.key, x.value, nil)
		x.key = keySeqKey(x.key[:0], x.topic, r.Key, at.partition, at.seq)
		_ = x.batch.Set(x.key, nil, nil)
	}
}

// await returns once every outcome is durable.
func (a *appending) await(ctx context.Context) error {
	switch {
	case a.commit != nil: // everything that was applied earlier is durable then too
		return a.log.commits.wait(ctx, a.commit)
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
