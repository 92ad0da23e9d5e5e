package reads

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
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
