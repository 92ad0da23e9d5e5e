package mongolog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// Read implements eventlog.Reader. One scan of the index returns the topic's head and then the
// documents from the seq on, so the watermark is older than the events that follow it. Below the
// watermark a gap is a removed event. Above it a gap is a hole, which ends the page.
func (l *Log) Read(ctx context.Context, name string, p int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, renew, end, err := l.beginSteps(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, part, err := l.partition(ctx, name, p)
	if err != nil {
		return nil, err
	}
	b.Events = max(b.Events, 1)
	r := &reading{page: page{bounds: b}, log: l, topic: t, p: p, part: part, next: max(from, part.floor.Load(), 1)}
	for more := true; more && r.next < headSeq; {
		err := l.persist(ctx, func() (err error) {
			more, err = r.window(ctx)
			return err
		})
		if err != nil {
			return nil, l.unavailable(ctx, "read topic "+name, err)
		}
		renew()
	}
	l.reached()
	return r.events, nil
}

// page holds the events read so far, up to its bounds.
type page struct {
	bounds eventlog.Bounds
	events []*eventlog.Record
	bytes  int
}

// full reports whether the page has reached its bounds.
func (p *page) full() bool {
	return len(p.events) >= p.bounds.Events || len(p.events) > 0 && p.bounds.Bytes > 0 && p.bytes >= p.bounds.Bytes
}

// add puts an event on the page.
func (p *page) add(raw bson.Raw) error {
	s, err := document.Decode(raw)
	if err != nil {
		return err
	}
	p.events = append(p.events, s.Record)
	p.bytes += s.Record.Size()
	return nil
}

// reading is one call of Read.
type reading struct {
	page
	log   *Log
	topic *topic
	p     int
	part  *partition

	next      uint64 // the next seq to read
	least     int    // documents that the next window reads at least
	waited    bool   // it has read again since an event was above the head
	voided    uint64 // the highest seq that this call has voided
	watermark uint64
}

// minWindow is the least number of documents that a window reads after a window without events. It
// is also the number of stubs and voids that may be read below the watermark.
const minWindow = 64

// window reads the documents from next on, and reports whether there may be more. Below the
// watermark it reads only live documents, so removed events cost nothing.
func (r *reading) window(ctx context.Context) (more bool, _ error) {
	l, began, index := r.log, r.next, any(bySeq)
	filter := bson.D{
		{Key: document.FieldTopic, Value: r.topic.Name}, {Key: document.FieldPartition, Value: bson.D{{Key: "$in", Value: bson.A{headPartition, r.p}}}},
		{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: int64(r.next)}}},
	}
	first, watermark := r.least == 0, r.watermark
	if first {
		watermark = r.part.watermark.Load()
	}
	onlyLive := first && watermark == 0 || r.next+minWindow <= watermark
	if onlyLive {
		index, filter = l.hint(byLiveSeq), append(filter, live)
	}
	limit := max(r.bounds.Events-len(r.events), r.least)
	r.least = minWindow
	o := options.Find().SetSort(bySeq).SetHint(index).SetLimit(int64(limit) + 1).
		SetBatchSize(r.topic.batchSize(limit, r.bounds.Bytes) + 1)
	cursor, err := l.majority(eventsName).Find(ctx, filter, o)
	if err != nil {
		return false, err
	}
	defer cursor.Close(ctx)
	if !cursor.Next(ctx) || !isHead(cursor.Current) {
		if err := cursor.Err(); err != nil {
			return false, err
		}
		return true, l.makeHead(ctx, r.topic)
	}
	head := topicHead(slices.Clone(cursor.Current))
	if head.generation() > r.topic.generation.Load() {
		// Reads depend on seqs alone; only appends and look-ups need the generation.
		if _, err := l.meet(ctx, r.topic, head); err != nil {
			return false, err
		}
	}
	r.watermark = head.watermark(r.p)
	raise(&r.part.watermark, r.watermark)
	raise(&r.part.floor, head.first(r.p))
	if first := head.first(r.p); first > r.next {
		r.next = first
		return true, nil
	}
	seen, last := 0, uint64(0) // last is the seq of the last event
	defer func() { r.part.newest.saw(began, r.next-1, last) }()
	for !r.full() && cursor.Next(ctx) {
		seen++
		raw := cursor.Current
		n, _ := raw.Lookup(document.FieldSeq).AsInt64OK()
		seq := uint64(n)
		if onlyLive && seq > r.watermark {
			break
		}
		if seq > head.head(r.p) {
			return r.beyond(ctx)
		}
		if first := max(r.next, r.watermark+1); seq > first {
			r.see(began, first-1, head)
			return r.hole(ctx, head, first, seq-1)
		}
		if gone, _ := raw.Lookup(document.FieldGone).BooleanOK(); !gone {
			if err := r.add(raw); err != nil {
				return false, err
			}
		}
		if void, _ := raw.Lookup(fieldVoid).BooleanOK(); !void {
			last = seq
		}
		r.next = seq + 1
	}
	if err := cursor.Err(); err != nil {
		return false, err
	}
	r.topic.sized(r.events, r.bytes)
	mayBeMore := !onlyLive && seen == limit
	if !r.full() && !mayBeMore {
		r.next = max(r.next, r.watermark+1)
	}
	r.see(began, r.next-1, head)
	switch {
	case r.full():
		return false, nil
	case mayBeMore:
		return true, nil
	case r.next > head.head(r.p):
		return false, nil
	case onlyLive:
		return true, nil
	}
	return r.hole(ctx, head, r.next, head.head(r.p))
}

func isHead(raw bson.Raw) bool {
	p, ok := raw.Lookup(document.FieldPartition).AsInt64OK()
	return ok && p == headPartition
}

// see notes that nothing is missing from the beginning of the window up to a seq.
func (r *reading) see(began, to uint64, head topicHead) {
	r.part.see(r.watermark)
	if began <= r.part.seen.Load()+1 && to > r.watermark {
		r.part.see(to)
		r.log.raiseWatermarkSoon(r.topic, head)
	}
}

// hole ends the page, unless the seqs have been missing for so long that hole voids them now. It
// voids them once: the page also ends if a void cannot be read back yet.
func (r *reading) hole(ctx context.Context, head topicHead, first, last uint64) (more bool, _ error) {
	upTo := r.part.holes.stood(r.log.opts.Clock, first, last, head.head(r.p), head.patience(r.p))
	if upTo <= r.voided {
		return false, nil
	}
	r.next = max(r.next, first)
	if err := r.log.fill(ctx, r.topic, r.p, first, upTo); err != nil {
		return false, err
	}
	r.voided = upTo
	return true, nil
}

// beyond handles an event above the head. Either the event is newer than the head that was read, or
// a reservation at w: 1 was lost with a primary.
func (r *reading) beyond(ctx context.Context) (more bool, _ error) {
	if len(r.events) > 0 {
		return false, nil
	}
	if !r.waited {
		r.waited = true
		return true, nil
	}
	return true, r.log.raiseHead(ctx, r.topic, r.p)
}

// ReadEach implements eventlog.Shared. Events without a gap between their seqs can be read without
// a head.
func (l *Log) ReadEach(ctx context.Context, name string, places []eventlog.Place, b eventlog.Bounds) ([][]*eventlog.Record, error) {
	ctx, t, end, err := l.beginOn(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	if len(places) == 0 {
		return nil, nil
	}
	each := make([][]*eventlog.Record, len(places))
	share := uint64(max(b.Events/len(places), 1))
	filters := make(bson.A, len(places))
	at := map[int]int{} // by partition
	for i, pl := range places {
		at[pl.Partition] = i
		filters[i] = inPartition(name, pl.Partition, between(int64(pl.Seq), int64(pl.Seq+share-1)), live)
	}
	b.Events = int(share) * len(places)
	events, err := l.page(ctx, t, anyOf(filters), options.Find().SetSort(bySeq).SetHint(l.hint(byLiveSeq)), b)
	for _, rec := range events {
		if i := at[rec.Partition]; rec.Seq == places[i].Seq+uint64(len(each[i])) {
			each[i] = append(each[i], rec)
		}
	}
	return each, err
}

// page reads the first events that a query finds, up to the bounds.
func (l *Log) page(ctx context.Context, t *topic, filter any, o *options.FindOptionsBuilder, b eventlog.Bounds) ([]*eventlog.Record, error) {
	b.Events = max(b.Events, 1)
	o.SetLimit(int64(b.Events)).SetBatchSize(t.batchSize(b.Events, b.Bytes))
	var p page
	err := l.persist(ctx, func() error {
		cursor, err := l.majority(eventsName).Find(ctx, filter, o)
		if err != nil {
			return err
		}
		defer cursor.Close(ctx)
		p = page{bounds: b}
		for !p.full() && cursor.Next(ctx) {
			if err := p.add(cursor.Current); err != nil {
				return err
			}
		}
		return cursor.Err()
	})
	if err != nil {
		return nil, l.unavailable(ctx, "read topic "+t.Name, err)
	}
	t.sized(p.events, p.bytes)
	l.reached()
	return p.events, nil
}

// sized records the average size of the events.
func (t *topic) sized(events []*eventlog.Record, bytes int) {
	if len(events) > 0 {
		t.eventBytes.Store(int64(bytes / len(events)))
	}
}

// batchSize is how many documents to request at once, so that a page takes one round trip and
// transfers little more than the page.
func (t *topic) batchSize(limit, bytes int) int32 {
	size := t.eventBytes.Load()
	if bytes <= 0 || size == 0 {
		return int32(min(limit, maxBatch))
	}
	return int32(min(int64(limit), int64(bytes)/size+1, maxBatch))
}

// maxBatch bounds the documents in one reply of the server. A reply never exceeds 16 MB.
const maxBatch = 10_000

// Lookup implements eventlog.Reader.
func (l *Log) Lookup(ctx context.Context, name, id string) (*eventlog.Record, error) {
	ctx, t, end, err := l.beginOn(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	for {
		generation := t.generation.Load()
		rec, err := l.lookup(ctx, t, generation, id)
		if !errors.Is(err, eventlog.ErrNotFound) {
			return rec, err
		}
		// A later generation may have it.
		if _, gone := l.storedTopic(ctx, name); gone != nil {
			return nil, gone
		}
		if t.generation.Load() == generation {
			return nil, err
		}
	}
}

// lookup is Lookup in one generation of the topic.
func (l *Log) lookup(ctx context.Context, t *topic, generation int64, id string) (*eventlog.Record, error) {
	what := fmt.Sprintf("event %q of topic %q", id, t.Name)
	var s document.Stored
	err := l.persist(ctx, func() error {
		raw, err := l.majority(eventsName).FindOne(ctx, byID(document.ID(t.Name, generation, id))).Raw()
		if err == nil {
			s, err = document.Decode(raw)
		}
		return err
	})
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return nil, l.unavailable(ctx, "look up "+what, err)
	}
	l.reached()
	if err != nil || s.Gone {
		return nil, fmt.Errorf("%s: %w", what, eventlog.ErrNotFound)
	}
	return s.Record, nil
}
