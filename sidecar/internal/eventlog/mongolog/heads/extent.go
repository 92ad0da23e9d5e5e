package heads

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Extents returns what each partition of the topic holds, under a head that the caller has read.
func (h *Heads) Extents(ctx context.Context, t *topics.Topic, head Head) ([]eventlog.Extent, error) {
	extents := make([]eventlog.Extent, len(t.Parts))
	err := ForEach(ctx, len(extents), func(ctx context.Context, p int) (err error) {
		extents[p], err = h.Extent(ctx, t, p, head)
		return err
	})
	return extents, err
}

// Extent is the extent of one partition. It ends at the first missing seq.
func (h *Heads) Extent(ctx context.Context, t *topics.Topic, p int, head Head) (x eventlog.Extent, err error) {
	part := &t.Parts[p]
	topics.Raise(&part.Seen, head.Watermark(p))
	end, err := h.contiguous(ctx, t, p, head, part.Seen.Load())
	if err != nil {
		return x, err
	}
	topics.Raise(&part.Seen, end)
	if end < head.Given(p) {
		hidden := events.InPartition(t.Name, p, events.Between(int64(end)+1, int64(head.End(p))), events.Live)
		if x.Hidden, err = h.store.Majority(core.Events).CountDocuments(ctx, hidden, options.Count().SetHint(events.ByLiveSeq)); err != nil {
			return x, err
		}
	}
	last, err := h.lastEvent(ctx, t, p, end)
	if err != nil {
		return x, err
	}
	topics.Raise(&part.Floor, head.First(p))
	first := uint64(0)
	if floor := part.Floor.Load(); floor <= last {
		if first, err = h.findLive(ctx, t, p, floor, last, 1); err != nil {
			return x, err
		}
	}
	if first == 0 {
		first = last + 1
	}
	x.First, x.Head, x.Voids = first, last, end-last
	x.Removed = min(head.Removed(p), first-1)
	return x, nil
}

// lastEvent is the highest seq up to end that an event has. Groups need not wait for voids above
// it. If no event is left, it is end.
func (h *Heads) lastEvent(ctx context.Context, t *topics.Topic, p int, end uint64) (uint64, error) {
	newest := &t.Parts[p].Newest
	if last, known := newest.UpTo(end); known || end == 0 {
		return last, nil
	}
	last, err := h.findLive(ctx, t, p, 1, end, -1)
	if err != nil {
		return 0, err
	}
	if last == 0 {
		return end, nil
	}
	newest.Saw(0, end, last)
	return last, nil
}

// findLive is the lowest (order 1) or highest (-1) seq of a live event between two seqs, or 0.
func (h *Heads) findLive(ctx context.Context, t *topics.Topic, p int, from, to uint64, order int) (uint64, error) {
	filter := events.InPartition(t.Name, p, events.Between(int64(from), int64(to)), events.Live)
	return events.FindSeq(ctx, h.store, filter, events.ByLiveSeq, order)
}

// maxQueries bounds the queries that one operation has under way.
const maxQueries = 8

// ForEach calls f for 0 to n-1, a bounded number at a time.
func ForEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxQueries)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
