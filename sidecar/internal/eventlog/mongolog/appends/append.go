// Package appends stores events at seqs that it has reserved.
//
// It reserves, then inserts, as CORFU does (Balakrishnan et al., NSDI 2012). A process has one batch
// of a topic under way at a time. Calls that arrive meanwhile, for any partition of the topic, form
// the next batch.
//
//   - A batch first reserves seqs at the topic's head, with one request for all its partitions. So
//     an append that begins after another was answered gets higher seqs in the same partition, on
//     any sidecar.
//   - It inserts the events at these seqs, in order. Readers read up to the first missing seq.
//   - A duplicate (topic, id) is a repeated publish, or an earlier try whose answer was lost; a
//     void takes the seq.
//   - A duplicate (topic, partition, seq) is a void: readers waited long enough and filled the seq.
//     The rest of the partition's events reserve again, in order.
//   - A process that appends alone does not reserve (lone.go).
//   - If the outcome is unknown, it inserts the same documents at the same seqs again: the unique
//     ids and seqs make that safe.
package appends

import (
	"context"
	"errors"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Append appends events that are not to be scheduled, and sets their outcomes.
func (a *Appender) Append(ctx context.Context, name string, p int, batch []*eventlog.Record, out []eventlog.Outcome) {
	err := a.appendOnce(ctx, name, p, batch, out)
	for err == nil {
		// The topic was deleted meanwhile, and maybe made again: events without a place start over.
		var rest []*eventlog.Record
		var at []int
		for i := range out {
			if errors.Is(out[i].Err, errAnotherGeneration) {
				rest, at = append(rest, batch[i]), append(at, i)
			}
		}
		if len(rest) == 0 {
			break
		}
		again := make([]eventlog.Outcome, len(rest))
		if failed := a.appendOnce(ctx, name, p, rest, again); failed != nil {
			for i := range again {
				again[i].Err = Unknown(failed)
			}
		}
		for i, o := range again {
			out[at[i]] = o
		}
	}
	for i, r := range batch {
		switch o := &out[i]; {
		case err != nil:
			*o = eventlog.Outcome{Err: Unknown(err)}
			r.FreshID = false
		case o.Err != nil:
			r.FreshID = false
		case !o.Duplicate:
			r.Partition, r.Seq = p, o.Seq
		}
	}
}

// appendOnce is Append to the known generation of the topic.
func (a *Appender) appendOnce(ctx context.Context, name string, p int, batch []*eventlog.Record, out []eventlog.Outcome) error {
	c, err := a.newCall(ctx, name, p, batch)
	if err == nil {
		err = a.enqueue(c)
	}
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		copy(out, c.out)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// newCall makes the documents of a call. An event that has no document gets its outcome here.
func (a *Appender) newCall(ctx context.Context, name string, p int, batch []*eventlog.Record) (*call, error) {
	opened, end, err := a.store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, _, err := a.catalog.FindPartition(opened, name, p)
	if err != nil {
		return nil, err
	}
	c := &call{
		ctx: ctx, topic: t, p: p, generation: t.Generation(), out: make([]eventlog.Outcome, len(batch)), done: make(chan struct{}),
	}
	size := 0
	for _, r := range batch {
		size += r.Size() + 2*len(name) + 256
	}
	writer, buf := rand.Int64(), make([]byte, 0, size)
	ends := make([]int, len(batch))
	for i, r := range batch {
		event := *r
		event.Partition, event.Seq = p, 0
		if buf, err = document.Append(buf, name, c.generation, &event, writer); err != nil {
			c.out[i].Err = &eventlog.RefusedError{Cause: err}
		}
		ends[i] = len(buf)
	}
	start := 0
	for i, end := range ends {
		if end > start {
			c.events = append(c.events, &pending{call: c, index: i, record: batch[i], raw: bson.Raw(buf[start:end:end])})
		}
		start = end
	}
	c.left = len(c.events)
	return c, nil
}

// enqueue makes the call part of the topic's next batch.
func (a *Appender) enqueue(c *call) error {
	if c.left == 0 {
		close(c.done)
		return nil
	}
	found, known := a.queues.Load(c.topic)
	if !known {
		found, _ = a.queues.LoadOrStore(c.topic, new(queue))
	}
	q := found.(*queue)
	return q.Add(a.store, c, a.linger, func(calls []*call) { a.appendCalls(c.topic, &q.lone, calls) })
}

// Move is a scheduled event that is due, and its place.
type Move struct {
	ID        string
	Partition int
	Token     int64 // its seq while it is scheduled
}

// Move gives scheduled events of a generation of a topic their seqs, in order, with now as their
// times. An outcome is empty if it is not known, for the reason in the error.
func (a *Appender) Move(ctx context.Context, t *topics.Topic, generation int64, moves []Move, now int64) ([]eventlog.Outcome, error) {
	outs := make([]eventlog.Outcome, len(moves))
	all := make([]eventlog.Outcome, len(moves)) // of the calls, which may outlast this function
	calls := map[int]*call{}
	for i, m := range moves {
		c := calls[m.Partition]
		if c == nil {
			c = &call{ctx: ctx, topic: t, p: m.Partition, generation: generation, out: all, done: make(chan struct{})}
			calls[m.Partition] = c
		}
		rec := &eventlog.Record{AcceptedAt: now}
		rec.ID, rec.TS = m.ID, now
		c.events = append(c.events, &pending{call: c, index: i, record: rec, token: m.Token})
		c.left++
	}
	for _, c := range calls {
		if err := a.enqueue(c); err != nil {
			return outs, err
		}
	}
	for _, c := range calls {
		select {
		case <-c.done:
		case <-ctx.Done():
			return outs, context.Cause(ctx)
		}
		for _, d := range c.events {
			if outs[d.index] = all[d.index]; errors.Is(outs[d.index].Err, errAnotherGeneration) {
				outs[d.index].Err = topics.NotThere(t.Name)
			}
		}
	}
	return outs, nil
}
