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
//   - If the outcome is unknown, it inserts the same documents at the same seqs again: the unique
//     ids and seqs make that safe.
package appends

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Config is what an Appender needs.
type Config struct {
	Store   *core.Store
	Catalog *topics.Catalog
	Heads   *heads.Heads
	// WriteConcern is a topic's, as policies write it; nil means majority for every topic.
	WriteConcern func(topic string) string
	// Linger is how long a topic's next batch waits after the previous one.
	Linger time.Duration
}

// Appender appends events to the topics of a store.
type Appender struct {
	store        *core.Store
	catalog      *topics.Catalog
	heads        *heads.Heads
	writeConcern func(topic string) string
	linger       time.Duration

	queues sync.Map // of calls, a *core.Batcher[*call] by *topics.Topic
	// unmet has, by topic, the write concern that the topic's last append did not meet: the event
	// was stored, but fewer members acknowledged it than the concern asks for. Only topics whose
	// policy names a number of members are in it.
	unmet sync.Map
}

// New makes an Appender.
func New(c Config) *Appender {
	return &Appender{store: c.Store, catalog: c.Catalog, heads: c.Heads, writeConcern: c.WriteConcern, linger: c.Linger}
}

// errAnotherGeneration says that the append is for a generation that has ended.
var errAnotherGeneration = errors.New("the topic was deleted meanwhile")

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

// Unknown is the error of an event that may or may not be stored.
func Unknown(err error) error {
	if !errors.Is(err, eventlog.ErrNotFound) && !errors.Is(err, eventlog.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// call is one call of Append.
type call struct {
	ctx   context.Context
	topic *topics.Topic
	p     int
	// generation is the topic's generation in the documents.
	generation int64
	events     []*pending // the events that have a document
	out        []eventlog.Outcome
	left       int // events without an outcome
	done       chan struct{}
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
	queue, found := a.queues.Load(c.topic)
	if !found {
		queue, _ = a.queues.LoadOrStore(c.topic, new(core.Batcher[*call]))
	}
	return queue.(*core.Batcher[*call]).Add(a.store, c, a.linger, func(calls []*call) { a.appendCalls(c.topic, calls) })
}

// answer gives an event its outcome, and ends the call with the last one.
func (c *call) answer(index int, o eventlog.Outcome) {
	c.out[index] = o
	if c.left--; c.left == 0 {
		close(c.done)
	}
}
