package mongolog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

const (
	// maxInsert bounds the documents of one insert.
	maxInsert = 1000
	// maxInsertBytes bounds one insert, well below the server's 48 MB.
	maxInsertBytes = 16 << 20
	// maxRivalInsert bounds the documents of one insert while other sidecars also append to the
	// topic: concurrent inserts of neighbours in a unique index cost MongoDB much more than inserts
	// one after the other.
	maxRivalInsert = 100
	// rivalsFor is how long after its append another sidecar still counts as appending.
	rivalsFor = 10 * time.Second
	// maxLookup bounds the ids that are looked up at once.
	maxLookup = 256
	// reservedFor is how long seqs that were given out count. It is far below seqTaken.
	reservedFor = time.Hour
)

// Append implements eventlog.Appender: reserve, then insert, as CORFU does (Balakrishnan et al.,
// NSDI 2012). A sidecar has one batch of a topic under way at a time. Calls that arrive meanwhile,
// for any partition of the topic, form the next batch.
//
//   - A batch first reserves seqs at the topic's head (heads.go), with one request for all its
//     partitions. So an append that begins after another was answered gets higher seqs in the same
//     partition, on any sidecar.
//   - It inserts the events at these seqs, in order. Readers read up to the first missing seq
//     (holes.go).
//   - A duplicate (topic, id) is a repeated publish, or an earlier try whose answer was lost; a
//     void takes the seq.
//   - A duplicate (topic, partition, seq) is a void: readers waited long enough and filled the seq.
//     The rest of the partition's events reserve again, in order.
//   - If the outcome is unknown, the log inserts the same documents at the same seqs again: the
//     unique ids and seqs make that safe.
func (l *Log) Append(ctx context.Context, name string, p int, batch []*eventlog.Record) []eventlog.Outcome {
	out := make([]eventlog.Outcome, len(batch))
	var failed error
	for start := 0; start < len(batch); {
		end, later := start+1, batch[start].DeliverAt != 0
		for end < len(batch) && (batch[end].DeliverAt != 0) == later {
			end++
		}
		switch some := batch[start:end]; {
		case failed != nil: // events that may be stored later must come before these
			for i, r := range some {
				out[start+i].Err, r.FreshID = failed, false
			}
		case later:
			l.schedule(ctx, name, some, out[start:end])
			for i, r := range some {
				r.FreshID = r.FreshID && out[start+i].Err == nil
			}
		default:
			l.appendNow(ctx, name, p, some, out[start:end])
		}
		for ; start < end; start++ {
			if err := out[start].Err; errors.Is(err, eventlog.ErrUnavailable) {
				failed = err
			}
		}
	}
	return out
}

// appendNow is Append of events that are not to be scheduled.
func (l *Log) appendNow(ctx context.Context, name string, p int, batch []*eventlog.Record, out []eventlog.Outcome) {
	err := l.appendOnce(ctx, name, p, batch, out)
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
		if failed := l.appendOnce(ctx, name, p, rest, again); failed != nil {
			for i := range again {
				again[i].Err = unknown(failed)
			}
		}
		for i, o := range again {
			out[at[i]] = o
		}
	}
	for i, r := range batch {
		switch o := &out[i]; {
		case err != nil:
			*o = eventlog.Outcome{Err: unknown(err)}
			r.FreshID = false
		case o.Err != nil:
			r.FreshID = false
		case !o.Duplicate:
			r.Partition, r.Seq = p, o.Seq
		}
	}
}

// appendOnce is Append to the known generation of the topic.
func (l *Log) appendOnce(ctx context.Context, name string, p int, batch []*eventlog.Record, out []eventlog.Outcome) error {
	c, err := l.newCall(ctx, name, p, batch)
	if err == nil {
		err = l.enqueue(c)
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

// unknown is the outcome of an event that may or may not be stored.
func unknown(err error) error {
	if !errors.Is(err, eventlog.ErrNotFound) && !errors.Is(err, eventlog.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// call is one call of Append.
type call struct {
	ctx   context.Context
	topic *topic
	p     int
	// generation is the topic's generation in the documents.
	generation int64
	events     []*pending // the events that have a document
	out        []eventlog.Outcome
	left       int // events without an outcome
	done       chan struct{}
}

// pending is a document that is not stored yet: of an event, or the void that takes the seq of an
// event that is not stored.
type pending struct {
	call   *call // nil: a void
	at     int   // in the call's batch
	record *eventlog.Record
	raw    bson.Raw // nil: a scheduled event is moved to the seq
	seq    uint64   // the reserved seq; 0: none
	token  int64    // of the scheduled event, or of a cancelled one, whose place this takes; 0: the document is inserted
}

// newCall makes the documents of a call. An event that has no document gets its outcome here.
func (l *Log) newCall(ctx context.Context, name string, p int, batch []*eventlog.Record) (*call, error) {
	opened, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, _, err := l.partition(opened, name, p)
	if err != nil {
		return nil, err
	}
	c := &call{ctx: ctx, topic: t, p: p, generation: t.generation.Load(), out: make([]eventlog.Outcome, len(batch)), done: make(chan struct{})}
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
			c.events = append(c.events, &pending{call: c, at: i, record: batch[i], raw: bson.Raw(buf[start:end:end])})
		}
		start = end
	}
	c.left = len(c.events)
	return c, nil
}

// enqueue makes the call part of the topic's next batch.
func (l *Log) enqueue(c *call) error {
	if c.left == 0 {
		close(c.done)
		return nil
	}
	return c.topic.calls.add(l, c, l.opts.Linger, func(calls []*call) { l.appendCalls(c.topic, calls) })
}

// batch holds the events that one batch appends to a topic.
type batch struct {
	log   *Log
	topic *topic
	// generation is the topic's generation that the batch is for.
	generation int64
	concern    concern
	lines      []*line
	renew      func() // begins the timeout again, since the server answers
	most       int    // documents in the next insert
	lookup     int    // ids to look up at the next duplicate
	wait       backoff
}

// line holds a batch's documents of one partition, in order.
type line struct {
	p       int
	pending []*pending
	since   moment // before the seqs were reserved
	// patience is the wait that the next reservation asks of readers; 0: none beyond the present
	// one.
	patience time.Duration
}

func (l *Log) appendCalls(t *topic, calls []*call) {
	b := &batch{log: l, topic: t, generation: t.generation.Load(), most: maxInsert, lookup: 1}
	lines := map[int]*line{}
	for _, c := range calls {
		if c.generation != b.generation {
			for _, d := range c.events {
				c.answer(d.at, eventlog.Outcome{Err: errAnotherGeneration})
			}
			continue
		}
		at := lines[c.p]
		if at == nil {
			at = &line{p: c.p}
			lines[c.p] = at
			b.lines = append(b.lines, at)
		}
		at.pending = append(at.pending, c.events...)
	}
	// The first caller may give up; other callers wait for the batch too.
	ctx, renew, end, err := l.beginSteps(context.WithoutCancel(calls[0].ctx))
	if err != nil {
		b.refuse(unknown(err))
		return
	}
	defer end()
	b.renew, b.concern = renew, l.concern(t.Name)
	err = b.run(ctx)
	if err == nil {
		return
	}
	if errors.Is(err, errAnotherGeneration) {
		b.refuse(err)
	} else if refusal := b.unmetConcern(ctx, err); refusal != nil {
		l.reached()
		if l.setUnmet(t.Name, refusal.Concern) {
			l.opts.Logger.Warn("the store does not meet the topic's write concern; its events are refused",
				"topic", t.Name, "write_concern", refusal.Concern, "error", err)
		}
		b.refuse(refusal)
	} else {
		b.refuse(unknown(l.unavailable(ctx, "append to topic "+t.Name, err)))
	}
}

// left is how many documents are not stored yet.
func (b *batch) left() (n int) {
	for _, at := range b.lines {
		n += len(at.pending)
	}
	return n
}

// errBehind says that a majority read does not yet return the document that an event collided with.
var errBehind = errors.New("events before these are not acknowledged by a majority yet")

// run continues until every event has its outcome or another try would not help.
func (b *batch) run(ctx context.Context) error {
	if _, unmet := b.log.unmet.Load(b.topic.Name); unmet {
		// Events that would be refused again get no seqs.
		if err := b.confirm(ctx); err != nil {
			return err
		}
	}
	for left := b.left(); left > 0; {
		err := b.step(ctx)
		if n := b.left(); n < left {
			left = n
			b.renew()
			b.wait = backoff{}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || isPermanent(err) || isUnmet(err) || errors.Is(err, errAnotherGeneration) {
			return err
		}
		longest := longWait
		if errors.Is(err, errBehind) {
			longest = shortWait
		}
		if b.wait.sleep(ctx, b.log.opts.Clock, longest) != nil {
			return err
		}
	}
	return nil
}

// step reserves seqs for events that need them, makes one insert, and acts on its result.
func (b *batch) step(ctx context.Context) error {
	if err := b.reserve(ctx); err != nil {
		return err
	}
	lines, chunk := b.chunk()
	if len(chunk) > 0 && chunk[0].token != 0 {
		return b.move(ctx, lines, chunk)
	}
	stored, failure := b.insert(ctx, chunk)
	if stored > 0 && failure.err != nil && b.log.sharded() {
		// A mongos that reports a write error does not report that the write concern was not met.
		if err := b.confirmStored(ctx, chunk[stored-1]); err != nil {
			return err
		}
	}
	for i, d := range chunk[:stored] {
		b.accept(lines[i], d)
		if d.call != nil { // a void does not end a run of repeated publishes
			b.lookup = 1
		}
	}
	if stored == len(chunk) {
		return failure.err
	}
	next := lines[stored]
	switch {
	case failure.duplicate:
		return b.resolve(ctx, next, failure.seqTaken)
	case failure.refused && stored+1 < len(chunk) && failure.whole:
		b.most = max(1, len(chunk)/2) // to find the refused document
		return nil
	case failure.refused:
		d := chunk[stored]
		err := &eventlog.RefusedError{Cause: fmt.Errorf("event %q: %w", d.record.ID, failure.err)}
		b.most = maxInsert
		return b.replace(ctx, next, 0, eventlog.Outcome{Err: err})
	}
	return failure.err
}

// reserve gives a seq to each event that has no valid one, with one request for all partitions. If
// the answer is lost, nobody uses the seqs, and readers void them.
func (b *batch) reserve(ctx context.Context) error {
	var inc, longer bson.D
	for _, at := range b.lines {
		if len(at.pending) > 0 && at.pending[0].seq > 0 && at.since.age(b.log.opts.Clock) > reservedFor {
			at.restart()
		}
		if len(at.pending) == 0 || at.pending[0].seq > 0 {
			continue
		}
		inc = append(inc, bson.E{Key: of(fieldHead, at.p), Value: int64(len(at.pending))})
		if at.patience > 0 {
			longer = append(longer, bson.E{Key: of(fieldPatience, at.p), Value: at.patience.Milliseconds()})
		}
	}
	if len(inc) == 0 {
		return nil
	}
	update := bson.D{{Key: "$inc", Value: inc}}
	if len(longer) > 0 {
		update = append(update, bson.E{Key: "$max", Value: longer})
	}
	since := now(b.log.opts.Clock)
	// Half of the time is left for another try if there is no answer.
	ctx, cancel := b.log.opts.Clock.WithTimeout(ctx, b.log.opts.Timeout/2)
	defer cancel()
	o := options.FindOneAndUpdate().SetReturnDocument(options.After)
	ours := append(byHead(b.topic.Name), bson.E{Key: fieldGeneration, Value: b.generation})
	raw, err := b.concern.heads.FindOneAndUpdate(ctx, ours, update, o).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return b.noHead(ctx)
	}
	if err != nil {
		return err
	}
	for _, at := range b.lines {
		if len(at.pending) == 0 || at.pending[0].seq > 0 {
			continue
		}
		last := topicHead(raw).head(at.p)
		at.give(last, since)
		if b.topic.partitions[at.p].reserved.Swap(last) != last-uint64(len(at.pending)) {
			b.topic.rivals.Store(b.log.opts.Clock.Now().UnixNano())
		}
	}
	return nil
}

// give gives the events the seqs that end with last.
func (at *line) give(last uint64, since moment) {
	at.since, at.patience = since, 0
	seq := last - uint64(len(at.pending))
	for _, d := range at.pending {
		seq++
		d.seq = seq
		if d.raw == nil {
			continue
		}
		binary.LittleEndian.PutUint64(d.raw.Lookup(document.FieldSeq).Value, seq)
	}
}

// restart takes the seqs back from the events, so that the events reserve again. It drops the
// voids: the batch abandons their seqs.
func (at *line) restart() {
	var events []*pending
	for _, d := range at.pending {
		if d.call != nil {
			d.seq = 0
			events = append(events, d)
		}
	}
	at.pending = events
}

// chunk returns the next documents to insert, and the line of each.
func (b *batch) chunk() (lines []*line, chunk []*pending) {
	most := b.most
	if b.log.opts.Clock.Since(time.Unix(0, b.topic.rivals.Load())) < rivalsFor {
		most = min(most, maxRivalInsert)
	}
	bytes := 0
	for _, at := range b.lines {
		for _, d := range at.pending {
			bytes += len(d.raw)
			if d.seq == 0 || len(chunk) == most || len(chunk) > 0 && (d.token != 0) != (chunk[0].token != 0) || len(chunk) > 0 && bytes > maxInsertBytes {
				return lines, chunk
			}
			lines, chunk = append(lines, at), append(chunk, d)
		}
	}
	return lines, chunk
}

// accept removes a stored document from the front of its line.
func (b *batch) accept(at *line, d *pending) {
	at.pending = at.pending[1:]
	if d.call != nil {
		b.met()
		d.call.answer(d.at, eventlog.Outcome{Partition: at.p, Seq: d.seq, TS: d.record.TS})
	}
}

// met notes that the store is reachable and meets the topic's write concern.
func (b *batch) met() {
	b.log.reached()
	if b.log.setUnmet(b.topic.Name, "") {
		b.log.opts.Logger.Info("the store meets the topic's write concern again", "topic", b.topic.Name)
	}
}

// replace gives the event at a place of its line an outcome, and puts a void there.
func (b *batch) replace(ctx context.Context, at *line, place int, o eventlog.Outcome) error {
	now, err := b.log.serverTime(ctx)
	if err != nil {
		return err
	}
	d := at.pending[place]
	raw, err := bson.Marshal(void(b.topic.Name, at.p, d.seq, now))
	if err != nil {
		return err
	}
	at.pending[place] = &pending{raw: raw, seq: d.seq}
	d.call.answer(d.at, o)
	return nil
}

// refuse gives the error to all events that have no outcome. They may be stored.
func (b *batch) refuse(err error) {
	for _, at := range b.lines {
		for _, d := range at.pending {
			if d.call != nil {
				d.call.answer(d.at, eventlog.Outcome{Err: err})
			}
		}
		at.pending = nil
	}
}

// answer gives an event its outcome, and ends the call with the last one.
func (c *call) answer(at int, o eventlog.Outcome) {
	c.out[at] = o
	if c.left--; c.left == 0 {
		close(c.done)
	}
}
