// Package reads finds events: from a seq on, by time, by key, by id, and what is above known seqs.
package reads

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Reader reads the events of a store.
type Reader struct {
	store   *core.Store
	catalog *topics.Catalog
	heads   *heads.Heads
}

// New makes a Reader.
func New(s *core.Store, c *topics.Catalog, h *heads.Heads) *Reader { return &Reader{s, c, h} }

// Read implements eventlog.Reader. One scan of the index returns the topic's head and then the
// documents from the seq on, so the watermark is older than the events that follow it. Below the
// watermark a gap is a removed event. Above it a gap is a hole, which ends the page.
func (r *Reader) Read(ctx context.Context, name string, p int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, renew, end, err := r.store.BeginSteps(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, part, err := r.catalog.FindPartition(ctx, name, p)
	if err != nil {
		return nil, err
	}
	b.Events = max(b.Events, 1)
	x := &reading{page: page{bounds: b}, Reader: r, topic: t, p: p, part: part, next: max(from, part.Floor.Load(), 1)}
	for more := true; more && x.next < heads.Seq; {
		err := r.store.Persist(ctx, func() (err error) {
			more, err = x.window(ctx)
			return err
		})
		if err != nil {
			return nil, r.store.Unavailable(ctx, "read topic "+name, err)
		}
		renew()
	}
	r.store.Reached()
	return x.events, nil
}

// reading is one call of Read.
type reading struct {
	page
	*Reader
	topic *topics.Topic
	p     int
	part  *topics.Partition

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
	began := r.next
	filter, limit, onlyLive := r.query()
	index := any(events.BySeq)
	if onlyLive {
		index = r.store.Hint(events.ByLiveSeq)
	}
	o := options.Find().SetSort(events.BySeq).SetHint(index).SetLimit(int64(limit) + 1).
		SetBatchSize(batchSize(r.topic, limit, r.bounds.Bytes) + 1)
	cursor, err := r.store.Majority(core.Events).Find(ctx, filter, o)
	if err != nil {
		return false, err
	}
	defer cursor.Close(ctx)
	if !cursor.Next(ctx) || !isHead(cursor.Current) {
		if err := cursor.Err(); err != nil {
			return false, err
		}
		return true, r.heads.Make(ctx, r.topic)
	}
	head := heads.Head(slices.Clone(cursor.Current))
	if err := r.learn(ctx, head); err != nil {
		return false, err
	}
	if first := head.First(r.p); first > r.next {
		r.next = first
		return true, nil
	}
	seen, last := 0, uint64(0) // last is the seq of the last event
	defer func() { r.part.Newest.Saw(began, r.next-1, last) }()
	for !r.full() && cursor.Next(ctx) {
		seen++
		raw := cursor.Current
		n, _ := raw.Lookup(document.FieldSeq).AsInt64OK()
		seq := uint64(n)
		if onlyLive && seq > r.watermark {
			break
		}
		if seq > head.End(r.p) {
			return r.beyond(ctx, head)
		}
		if first := max(r.next, r.watermark+1); seq > first {
			r.see(began, first-1, head)
			if first > head.Given(r.p) {
				return r.beyond(ctx, head)
			}
			return r.hole(ctx, head, first, min(seq-1, head.Given(r.p)))
		}
		if gone, _ := raw.Lookup(document.FieldGone).BooleanOK(); !gone {
			if err := r.add(raw); err != nil {
				return false, err
			}
		}
		if isVoid, _ := raw.Lookup(events.FieldVoid).BooleanOK(); !isVoid {
			last = seq
		}
		r.next = seq + 1
	}
	if err := cursor.Err(); err != nil {
		return false, err
	}
	sized(r.topic, r.page)
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
	case onlyLive && r.next <= head.End(r.p):
		return true, nil
	case r.next > head.Given(r.p):
		return false, nil
	}
	return r.hole(ctx, head, r.next, head.Given(r.p))
}

// query selects the head, and the documents of the next window: only live ones below the watermark.
func (r *reading) query() (filter bson.D, limit int, onlyLive bool) {
	filter = bson.D{
		{Key: document.FieldTopic, Value: r.topic.Name},
		{Key: document.FieldPartition, Value: bson.D{{Key: "$in", Value: bson.A{heads.Partition, r.p}}}},
		{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: int64(r.next)}}},
	}
	first, watermark := r.least == 0, r.watermark
	if first {
		watermark = r.part.Watermark.Load()
	}
	onlyLive = first && watermark == 0 || r.next+minWindow <= watermark
	if onlyLive {
		filter = append(filter, events.Live)
	}
	limit = max(r.bounds.Events-len(r.events), r.least)
	r.least = minWindow
	return filter, limit, onlyLive
}

// learn takes what a head says of the partition.
func (r *reading) learn(ctx context.Context, head heads.Head) error {
	if head.Generation() > r.topic.Generation() {
		// Reads depend on seqs alone; only appends and look-ups need the generation.
		if _, err := r.heads.Meet(ctx, r.topic, head); err != nil {
			return err
		}
	}
	r.watermark = head.Watermark(r.p)
	topics.Raise(&r.part.Watermark, r.watermark)
	topics.Raise(&r.part.Floor, head.First(r.p))
	return nil
}

func isHead(raw bson.Raw) bool {
	p, ok := raw.Lookup(document.FieldPartition).AsInt64OK()
	return ok && p == heads.Partition
}

// see notes that nothing is missing from the beginning of the window up to a seq.
func (r *reading) see(began, to uint64, head heads.Head) {
	topics.Raise(&r.part.Seen, r.watermark)
	if began <= r.part.Seen.Load()+1 && to > r.watermark {
		topics.Raise(&r.part.Seen, to)
		r.heads.RaiseWatermarkSoon(r.topic, head)
	}
}

// hole ends the page, unless the seqs have been missing for so long that hole voids them now. It
// voids them once: the page also ends if a void cannot be read back yet.
func (r *reading) hole(ctx context.Context, head heads.Head, first, last uint64) (more bool, _ error) {
	upTo := r.heads.Stood(r.topic, r.p, head, first, last)
	if upTo <= r.voided {
		return false, nil
	}
	r.next = max(r.next, first)
	if err := r.heads.Fill(ctx, r.topic, r.p, first, upTo); err != nil {
		return false, err
	}
	r.voided = upTo
	return true, nil
}

// beyond handles an event above the head, which no lone writer has stored behind the one before it.
// Either the event is newer than what was read before it, or a reservation at w: 1 was lost with a
// primary.
func (r *reading) beyond(ctx context.Context, head heads.Head) (more bool, _ error) {
	if len(r.events) > 0 {
		return false, nil
	}
	if !r.waited {
		r.waited = true
		return true, nil
	}
	if head.Lone() != 0 {
		return true, r.heads.EndLone(ctx, r.topic, head)
	}
	return true, r.heads.RaiseGiven(ctx, r.topic, r.p)
}

// ReadEach implements eventlog.Shared. Events without a gap between their seqs can be read without
// a head.
func (r *Reader) ReadEach(ctx context.Context, name string, places []eventlog.Place, b eventlog.Bounds) ([][]*eventlog.Record, error) {
	ctx, t, end, err := r.catalog.Begin(ctx, name)
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
		filters[i] = events.InPartition(name, pl.Partition, events.Between(int64(pl.Seq), int64(pl.Seq+share-1)), events.Live)
	}
	b.Events = int(share) * len(places)
	o := options.Find().SetSort(events.BySeq).SetHint(r.store.Hint(events.ByLiveSeq))
	found, err := r.page(ctx, t, core.AnyOf(filters), o, b)
	for _, rec := range found {
		if i := at[rec.Partition]; rec.Seq == places[i].Seq+uint64(len(each[i])) {
			each[i] = append(each[i], rec)
		}
	}
	return each, err
}

// page reads the first events that a query finds, up to the bounds.
func (r *Reader) page(
	ctx context.Context, t *topics.Topic, filter bson.D, o *options.FindOptionsBuilder, b eventlog.Bounds,
) ([]*eventlog.Record, error) {
	b.Events = max(b.Events, 1)
	o.SetLimit(int64(b.Events)).SetBatchSize(batchSize(t, b.Events, b.Bytes))
	var p page
	err := r.store.Persist(ctx, func() error {
		cursor, err := r.store.Majority(core.Events).Find(ctx, filter, o)
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
		return nil, r.store.Unavailable(ctx, "read topic "+t.Name, err)
	}
	sized(t, p)
	r.store.Reached()
	return p.events, nil
}
