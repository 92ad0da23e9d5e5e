package mongolog

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// maxQueries bounds the queries that one operation has under way.
const maxQueries = 8

// Extents implements eventlog.Reader.
func (l *Log) Extents(ctx context.Context, name string) ([]eventlog.Extent, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, err := l.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	extents, err := l.extents(ctx, t)
	if err != nil {
		return nil, unavailable(ctx, "read the extents of topic "+name, err)
	}
	l.health.reached()
	return extents, nil
}

func (l *Log) extents(ctx context.Context, t *topic) ([]eventlog.Extent, error) {
	head, err := l.readHead(ctx, t)
	if err != nil {
		return nil, err
	}
	return l.extentsUnder(ctx, t, head)
}

// extentsUnder is extents, where the head was read already.
func (l *Log) extentsUnder(ctx context.Context, t *topic, head topicHead) ([]eventlog.Extent, error) {
	extents := make([]eventlog.Extent, len(t.partitions))
	err := forEach(ctx, len(extents), func(ctx context.Context, p int) (err error) {
		extents[p], err = l.extent(ctx, t, p, head)
		return err
	})
	return extents, err
}

// extent is one partition's. It ends where something is missing.
func (l *Log) extent(ctx context.Context, t *topic, p int, head topicHead) (eventlog.Extent, error) {
	part := &t.partitions[p]
	part.see(head.settled(p))
	end, err := l.contiguous(ctx, t, p, head, part.seen.Load())
	if err != nil {
		return eventlog.Extent{}, err
	}
	part.see(end)
	last, err := l.lastEvent(ctx, t, p, end)
	if err != nil {
		return eventlog.Extent{}, err
	}
	raise(&part.floor, head.first(p))
	floor := part.floor.Load()
	if floor > last {
		return eventlog.Extent{First: last + 1, Head: last}, nil
	}
	first, err := findSeq(ctx, l, l.majority(eventsName), inPartition(t.Name, p, between(int64(floor), int64(last)), readable), 1)
	if first == 0 {
		first = last + 1
	}
	return eventlog.Extent{First: first, Head: last}, err
}

// lastEvent is the highest seq up to end that an event has or had: nobody has to wait for voids above it. Where no document
// is left to tell, it is end.
func (l *Log) lastEvent(ctx context.Context, t *topic, p int, end uint64) (uint64, error) {
	newest := &t.partitions[p].newest
	if last, known := newest.at(end); known || end == 0 {
		return last, nil
	}
	events := inPartition(t.Name, p, between(1, int64(end)), bson.E{Key: fieldVoid, Value: bson.D{{Key: "$exists", Value: false}}})
	last, err := findSeq(ctx, l, l.majority(eventsName), events, -1)
	if err != nil {
		return 0, err
	}
	if last == 0 {
		return end, nil
	}
	newest.saw(0, end, last)
	return last, nil
}

// forEach calls f for 0 to n-1, some of them at once.
func forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxQueries)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// Seek implements eventlog.Reader.
func (l *Log) Seek(ctx context.Context, name string, p eventlog.Position) ([]uint64, error) {
	ctx, end, err := l.beginWithin(ctx, l.seekTimeout())
	if err != nil {
		return nil, err
	}
	defer end()
	t, err := l.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	var q eventlog.ScanQuery
	switch p.From {
	case wire.FromLatest, wire.FromEarliest:
	case wire.FromTS:
		q = eventlog.ScanQuery{MinTS: p.TS}
	case wire.FromAfterID:
		q = eventlog.ScanQuery{MinTS: p.After.TS, After: &p.After}
	default:
		return nil, fmt.Errorf("position %q is not one of %s, %s, %s and %s",
			p.From, wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID)
	}
	seqs, err := l.seek(ctx, t, p.From, q)
	if err != nil {
		return nil, unavailable(ctx, "seek in topic "+name, err)
	}
	l.health.reached()
	return seqs, nil
}

// seek starts from the extents, so that what is appended in between is not
// passed over.
func (l *Log) seek(ctx context.Context, t *topic, from string, q eventlog.ScanQuery) ([]uint64, error) {
	// This takes no longer than any operation, and shows that the store is
	// there: only what may go through a large part of the topic has more time.
	soon, cancel := l.opts.Clock.WithTimeoutCause(ctx, l.opts.Timeout, eventlog.ErrTimeout)
	defer cancel()
	extents, err := l.extents(soon, t)
	if err != nil {
		return nil, err
	}
	seqs := make([]uint64, len(extents))
	for i, e := range extents {
		seqs[i] = e.Head + 1
		if from == wire.FromEarliest {
			seqs[i] = e.First
		}
	}
	if from == wire.FromLatest || from == wire.FromEarliest {
		return seqs, nil
	}
	// Whether a partition's events are gone through by seq or those of the
	// time by ts is for the server to find out: it tries both.
	return seqs, forEach(ctx, len(seqs), func(ctx context.Context, p int) error {
		within := between(int64(extents[p].First), int64(extents[p].Head))
		filter, _ := scanFilter(inPartition(t.Name, p, within), q)
		for _, one := range alternatives(filter) {
			seq, err := findSeq(ctx, l, l.majority(eventsName), one, 1)
			if err != nil {
				return err
			}
			if seq > 0 {
				seqs[p] = min(seqs[p], seq)
			}
		}
		return nil
	})
}

// alternatives are the parts of a filter any of which has to hold. To find a
// lowest seq each is asked for by itself: together, the server could find those
// of one in seq order and those of the other by ts, and would have to sort all
// there are.
func alternatives(filter bson.D) []bson.D {
	if len(filter) != 1 || filter[0].Key != "$or" {
		return []bson.D{filter}
	}
	var list []bson.D
	for _, one := range filter[0].Value.(bson.A) {
		list = append(list, one.(bson.D))
	}
	return list
}
