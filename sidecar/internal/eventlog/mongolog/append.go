package mongolog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

const (
	// maxInsertBytes bounds one insert, well below the server's 48 MB.
	maxInsertBytes = 16 << 20
	// maxLookup bounds the ids that are looked up at once.
	maxLookup = 256
)

// Append implements eventlog.Appender. It inserts the events with the seqs
// above the partition's head, in order, and lets the unique indexes decide:
//
//   - a duplicate (topic, id) is a repeated publish, or an earlier try of this
//     call whose answer was lost;
//   - a duplicate (topic, partition, seq) is a head that is out of date, since
//     another sidecar has appended;
//   - where it is not known what happened, the same is done again: the ids
//     make that safe.
//
// A seq is only ever inserted by somebody who has seen the one below it, so
// the store's own history has them in order, and readers see them so.
func (l *Log) Append(ctx context.Context, name string, p int, batch []*eventlog.Record) []eventlog.Outcome {
	a := &appending{log: l, p: p, batch: batch, out: make([]eventlog.Outcome, len(batch))}
	if len(batch) == 0 {
		return a.out
	}
	for i := range batch {
		a.todo = append(a.todo, i)
	}
	ctx, renew, end, err := l.beginSteps(ctx)
	if err != nil {
		a.unknown(err)
		return a.out
	}
	defer end()
	a.renew = renew
	if a.topic, a.partition, err = l.partition(ctx, name, p); err != nil {
		a.unknown(err)
		return a.out
	}
	a.concern = l.concern(name)
	a.writer = rand.Int64()
	a.most, a.lookup = l.engine().maxOrdered, 1
	a.encode(l.engine().encoder())
	err = a.run(ctx)
	if err == nil {
		l.health.reached()
		if l.unmet.set(name, "") {
			l.opts.Logger.Info("the store meets the topic's write concern again", "topic", name)
		}
	} else if refusal := a.unmetConcern(ctx, err); refusal != nil {
		l.health.reached()
		if l.unmet.set(name, refusal.Concern) {
			l.opts.Logger.Warn("the store does not meet the topic's write concern; its events are refused",
				"topic", name, "write_concern", refusal.Concern, "error", err)
		}
		a.refuse(refusal)
	} else {
		a.unknown(unavailable(ctx, "append to topic "+name, err))
	}
	return a.out
}

// appending is one call of Append.
type appending struct {
	log       *Log
	topic     *topic
	p         int
	partition *partition
	concern   concern
	// writer is the call's own number: a document that has it was inserted by
	// this call, whether or not the server's answer arrived.
	writer int64

	batch []*eventlog.Record
	out   []eventlog.Outcome
	docs  []draft // of each event of the batch
	todo  []int   // the events that have no outcome yet, ascending

	renew  func() // the time that is left begins anew, since the server answers
	most   int    // documents in one insert
	lookup int    // ids to look up at the next duplicate
	tried  bool
	oldest head    // that a try went by
	wait   backoff // since the last event that got its outcome
}

// draft is an event's document.
type draft struct {
	raw bson.Raw
	seq []byte // the place in raw of the seq's eight bytes
}

// errBehind: events are in the way that cannot be read yet.
var errBehind = errors.New("events before these are not acknowledged by a majority yet")

// encode makes the documents. An event that makes none gets its outcome.
func (a *appending) encode(enc document.Encoder) {
	size := 0
	for _, r := range a.batch {
		size += r.Size() + 2*len(a.topic.Name) + 256
	}
	buf := make([]byte, 0, size)
	ends := make([]int, len(a.batch))
	for i, r := range a.batch {
		event := *r
		event.Partition, event.Seq = a.p, 0
		var err error
		if buf, err = enc.Append(buf, a.topic.Name, &event, a.writer); err != nil {
			a.out[i].Err = err
		}
		ends[i] = len(buf)
	}
	a.docs = make([]draft, len(a.batch))
	start := 0
	for i, end := range ends {
		if end > start {
			raw := bson.Raw(buf[start:end:end])
			a.docs[i] = draft{raw: raw, seq: raw.Lookup(document.FieldSeq).Value}
		}
		start = end
	}
	a.drop()
}

// run goes on until every event has its outcome, or there is no use in it.
func (a *appending) run(ctx context.Context) error {
	for left := len(a.todo); left > 0; {
		err := a.step(ctx)
		if n := len(a.todo); n < left {
			left = n
			a.renew()
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || isHopeless(err) || isUnmet(err) {
			return err
		}
		longest := longWait
		if errors.Is(err, errBehind) {
			longest = shortWait
		}
		if a.wait.sleep(ctx, a.log.opts.Clock, longest) != nil {
			return err
		}
	}
	return nil
}

// step makes one insert of events from the front of todo, and draws the
// conclusions. After an error it is not known what happened.
func (a *appending) step(ctx context.Context) error {
	base, err := a.log.currentHead(ctx, a.concern, a.topic, a.p)
	if err != nil {
		return err
	}
	if !a.tried || base.since.mono.Before(a.oldest.since.mono) {
		a.tried, a.oldest = true, base
	}
	chunk := a.chunk()
	for i, at := range chunk {
		binary.LittleEndian.PutUint64(a.docs[at].seq, base.seq+1+uint64(i))
	}
	next := head{since: now(a.log.opts.Clock), generation: a.log.topology.generation.Load()}
	stored, failure := a.insert(ctx, chunk)
	if stored > 0 {
		if stands, err := a.stands(ctx, base); err != nil {
			return err
		} else if !stands {
			return a.undo(ctx, chunk[:stored], base.seq+1)
		}
		for i, at := range chunk[:stored] {
			a.accept(at, base.seq+1+uint64(i))
		}
		a.drop()
		a.lookup = 1
		next.seq = base.seq + uint64(stored)
		a.partition.head.confirm(next)
	}
	switch {
	case failure.duplicate:
		return a.resolve(ctx, failure.ofSeq, base.seq+uint64(stored)+1)
	case failure.refused && stored+1 < len(chunk) && failure.whole:
		a.most = max(1, len(chunk)/2) // to find out which it is
		return nil
	case failure.refused:
		at := chunk[stored]
		a.out[at].Err = fmt.Errorf("event %q: the store refuses its document: %w", a.batch[at].ID, failure.err)
		a.most = a.log.engine().maxOrdered
		a.drop()
		return nil
	}
	return failure.err
}

// chunk is the next events to insert.
func (a *appending) chunk() []int {
	n, bytes := 0, 0
	for n < len(a.todo) && n < a.most {
		bytes += len(a.docs[a.todo[n]].raw)
		if n > 0 && bytes > maxInsertBytes {
			break
		}
		n++
	}
	return a.todo[:n:n]
}

// accept is the outcome of an event that this call has stored.
func (a *appending) accept(at int, seq uint64) {
	r := a.batch[at]
	r.Partition, r.Seq = a.p, seq
	a.out[at] = eventlog.Outcome{Partition: a.p, Seq: seq, TS: r.TS}
	a.wait = backoff{}
}

// drop takes events that have their outcome out of todo.
func (a *appending) drop() {
	left := make([]int, 0, len(a.todo))
	for _, at := range a.todo {
		if o := &a.out[at]; o.Err == nil && o.Seq == 0 {
			left = append(left, at)
		}
	}
	a.todo = left
}

// unknown is the outcome of all events that have none.
func (a *appending) unknown(err error) {
	if !errors.Is(err, eventlog.ErrNotFound) && !errors.Is(err, eventlog.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	a.refuse(err)
}

// refuse gives the error to all events that have no outcome. They may be stored.
func (a *appending) refuse(err error) {
	for _, at := range a.todo {
		a.out[at] = eventlog.Outcome{Err: err}
		a.batch[at].FreshID = false
	}
	a.todo = nil
}
