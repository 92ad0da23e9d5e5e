package reads

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

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

// sized records the average size of the events.
func sized(t *topics.Topic, p page) {
	if len(p.events) > 0 {
		t.EventBytes.Store(int64(p.bytes / len(p.events)))
	}
}

// batchSize is how many documents to request at once, so that a page takes one round trip and
// transfers little more than the page.
func batchSize(t *topics.Topic, limit, bytes int) int32 {
	size := t.EventBytes.Load()
	if bytes <= 0 || size == 0 {
		return int32(min(limit, maxBatch))
	}
	return int32(min(int64(limit), int64(bytes)/size+1, maxBatch))
}

// maxBatch bounds the documents in one reply of the server. A reply never exceeds 16 MB.
const maxBatch = 10_000

// Scan implements eventlog.Reader with the index on (topic, ts, id) or the one on (topic, key, ts,
// id).
func (r *Reader) Scan(ctx context.Context, name string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, t, end, err := r.catalog.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	filters := scanFilters(bson.D{{Key: "topic", Value: name}}, q)
	if len(filters) == 0 {
		return nil, nil
	}
	order, index := 1, events.ByTS
	if q.Descending {
		order = -1
	}
	if q.Key != nil {
		index = events.ByKeyTS
	}
	o := options.Find().SetHint(r.store.Hint(index)).SetSort(bson.D{{Key: "ts", Value: order}, {Key: "id", Value: order}})
	return r.page(ctx, t, core.AnyOf(filters), o, b)
}

// scanFilters returns filters that together select the events of q within a scope; no filter means
// that there are no such events. If the query continues after a point, one filter selects the
// events with the point's ts and later ids, and another the events of other times. These are two
// ranges of one index, each in the wanted order, and the server merges them.
func scanFilters(scope bson.D, q eventlog.ScanQuery) (filters bson.A) {
	if q.Key != nil {
		scope = append(scope, bson.E{Key: "key", Value: *q.Key})
	}
	scope = slices.Clip(scope)
	least, most := q.MinTS, q.Upper()
	if p := q.After; p != nil {
		within, beyond := least <= p.TS && p.TS <= most, "$gt"
		if q.Descending {
			most, beyond = min(most, max(p.TS, math.MinInt64+1)-1), "$lt"
		} else {
			least = max(least, min(p.TS, math.MaxInt64-1)+1)
		}
		if within {
			further := bson.E{Key: "id", Value: bson.D{{Key: beyond, Value: p.ID}}}
			filters = append(filters, append(scope, bson.E{Key: "ts", Value: p.TS}, further, events.Live))
		}
	}
	if least <= most {
		times := bson.E{Key: "ts", Value: bson.D{{Key: "$gte", Value: least}, {Key: "$lte", Value: most}}}
		filters = append(filters, append(scope, times, events.Live))
	}
	return filters
}

// Lookup implements eventlog.Reader.
func (r *Reader) Lookup(ctx context.Context, name, id string) (*eventlog.Record, error) {
	ctx, t, end, err := r.catalog.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	for {
		generation := t.Generation()
		rec, err := r.lookup(ctx, t, generation, id)
		if !errors.Is(err, eventlog.ErrNotFound) {
			return rec, err
		}
		// A later generation may have it.
		if _, gone := r.catalog.Stored(ctx, name); gone != nil {
			return nil, gone
		}
		if t.Generation() == generation {
			return nil, err
		}
	}
}

// lookup is Lookup in one generation of the topic.
func (r *Reader) lookup(ctx context.Context, t *topics.Topic, generation int64, id string) (*eventlog.Record, error) {
	what := fmt.Sprintf("event %q of topic %q", id, t.Name)
	var s document.Stored
	err := r.store.Persist(ctx, func() error {
		raw, err := r.store.Majority(core.Events).FindOne(ctx, core.ByID(document.ID(t.Name, generation, id))).Raw()
		if err == nil {
			s, err = document.Decode(raw)
		}
		return err
	})
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return nil, r.store.Unavailable(ctx, "look up "+what, err)
	}
	r.store.Reached()
	if err != nil || s.Gone {
		return nil, fmt.Errorf("%s: %w", what, eventlog.ErrNotFound)
	}
	return s.Record, nil
}

// LookupEach implements eventlog.Redrives.
func (r *Reader) LookupEach(ctx context.Context, topic string, ids []string) ([]*eventlog.Record, error) {
	found := map[string]*eventlog.Record{}
	for some := range slices.Chunk(ids, core.MaxStatements) {
		err := r.EachByID(ctx, topic, some, nil, func(raw bson.Raw) error {
			s, err := document.Decode(raw)
			if err == nil && !s.Gone {
				found[s.Record.ID] = s.Record
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	recs := make([]*eventlog.Record, len(ids))
	for i, id := range ids {
		recs[i] = found[id]
	}
	return recs, nil
}

// EachByID calls each with the documents of ids.
func (r *Reader) EachByID(ctx context.Context, topic string, ids []string, projection bson.D, each func(bson.Raw) error) error {
	t, err := r.catalog.Known(ctx, topic)
	if err != nil {
		return err
	}
	generation := t.Generation()
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = document.ID(topic, generation, id)
	}
	o := options.Find()
	if projection != nil {
		o.SetProjection(projection)
	}
	found := 0
	err = r.store.WithinSession(ctx, "look up events of topic "+topic, func(ctx context.Context) error {
		raws, err := core.FindAll[bson.Raw](ctx, r.store, core.Events, bson.D{core.IDAmong(keys)}, o)
		found = len(raws)
		for _, raw := range raws {
			if err == nil {
				err = each(raw)
			}
		}
		return err
	})
	if err != nil || found == len(ids) {
		return err
	}
	// A later generation may have the others.
	if err = r.catalog.Reread(ctx, topic); err != nil || t.Generation() == generation {
		return err
	}
	return r.EachByID(ctx, topic, ids, projection, each)
}
