package mongolog

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// maxQueries bounds the queries that one operation has under way.
const maxQueries = 8

// Extents implements eventlog.Reader.
func (l *Log) Extents(ctx context.Context, name string) ([]eventlog.Extent, error) {
	ctx, t, end, err := l.beginOn(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	extents, err := l.extents(ctx, t)
	if err != nil {
		return nil, l.unavailable(ctx, "read the extents of topic "+name, err)
	}
	l.reached()
	return extents, nil
}

func (l *Log) extents(ctx context.Context, t *topic) ([]eventlog.Extent, error) {
	head, err := l.readHead(ctx, t)
	if err != nil {
		return nil, err
	}
	return l.extentsUnder(ctx, t, head)
}

// extentsUnder is extents with a head that the caller has read.
func (l *Log) extentsUnder(ctx context.Context, t *topic, head topicHead) ([]eventlog.Extent, error) {
	extents := make([]eventlog.Extent, len(t.partitions))
	err := forEach(ctx, len(extents), func(ctx context.Context, p int) (err error) {
		extents[p], err = l.extent(ctx, t, p, head)
		return err
	})
	return extents, err
}

// extent is the extent of one partition. It ends at the first missing seq.
func (l *Log) extent(ctx context.Context, t *topic, p int, head topicHead) (x eventlog.Extent, err error) {
	part := &t.partitions[p]
	part.see(head.watermark(p))
	end, err := l.contiguous(ctx, t, p, head, part.seen.Load())
	if err != nil {
		return x, err
	}
	part.see(end)
	if highest := head.head(p); end < highest {
		if x.Hidden, err = l.majority(eventsName).CountDocuments(ctx, inPartition(t.Name, p, between(int64(end)+1, int64(highest)), live),
			options.Count().SetHint(byLiveSeq)); err != nil {
			return x, err
		}
	}
	last, err := l.lastEvent(ctx, t, p, end)
	if err != nil {
		return x, err
	}
	raise(&part.floor, head.first(p))
	floor := part.floor.Load()
	if floor > last {
		x.First, x.Head = last+1, last
		return x, nil
	}
	first, err := l.findSeq(ctx, inPartition(t.Name, p, between(int64(floor), int64(last)), live), byLiveSeq, 1)
	if first == 0 {
		first = last + 1
	}
	x.First, x.Head = first, last
	return x, err
}

// lastEvent is the highest seq up to end that an event has. Groups need not wait for voids above
// it. If no event is left, it is end.
func (l *Log) lastEvent(ctx context.Context, t *topic, p int, end uint64) (uint64, error) {
	newest := &t.partitions[p].newest
	if last, known := newest.at(end); known || end == 0 {
		return last, nil
	}
	last, err := l.findSeq(ctx, inPartition(t.Name, p, between(1, int64(end)), live), byLiveSeq, -1)
	if err != nil {
		return 0, err
	}
	if last == 0 {
		return end, nil
	}
	newest.saw(0, end, last)
	return last, nil
}

// forEach calls f for 0 to n-1, a bounded number at a time.
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
	ctx, renew, end, err := l.beginSteps(ctx)
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
	seqs, err := l.seek(ctx, renew, t, p.From, q)
	if err != nil {
		return nil, l.unavailable(ctx, "seek in topic "+name, err)
	}
	l.reached()
	return seqs, nil
}

// seek starts from the extents, so it skips no event that is appended meanwhile.
func (l *Log) seek(ctx context.Context, renew func(), t *topic, from string, q eventlog.ScanQuery) ([]uint64, error) {
	extents, err := l.extents(ctx, t)
	if err != nil {
		return nil, err
	}
	renew()
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
	if slices.ContainsFunc(extents, func(e eventlog.Extent) bool { return e.Head >= e.First+seekWindow }) {
		if done, err := l.seekByTS(ctx, t, extents, q, seqs); done || err != nil {
			return seqs, err
		}
	}
	return seqs, forEach(ctx, len(seqs), func(ctx context.Context, p int) error {
		for first, head := int64(extents[p].First), int64(extents[p].Head); first <= head; first += seekWindow {
			// Together the filters do not return events in the order of seqs.
			for _, filter := range scanFilters(inPartition(t.Name, p, between(first, min(first+seekWindow-1, head))), q) {
				seq, err := l.findSeq(ctx, filter.(bson.D), byLiveSeq, 1)
				if err != nil {
					return err
				}
				if seq > 0 {
					seqs[p] = min(seqs[p], seq)
				}
			}
			renew()
			if seqs[p] <= extents[p].Head {
				break
			}
		}
		return nil
	})
}

const (
	// seekWindow is how many seqs one query of a seek covers.
	seekWindow = 100_000
	// seekEvents is how many events a seek reads by ts. If there are that many or more, it goes
	// through the seqs instead.
	seekEvents = 1000
)

// seekByTS finds the seqs by reading the events of the time, in all partitions, if there are few.
func (l *Log) seekByTS(ctx context.Context, t *topic, extents []eventlog.Extent, q eventlog.ScanQuery, seqs []uint64) (done bool, _ error) {
	filters := scanFilters(bson.D{{Key: document.FieldTopic, Value: t.Name}}, q)
	if len(filters) == 0 {
		return true, nil
	}
	found, err := findAll[entry](ctx, l, l.majority(eventsName), anyOf(filters), options.Find().SetHint(l.hint(byTS)).
		SetLimit(seekEvents).SetProjection(entryFields))
	if err != nil || len(found) == seekEvents {
		return false, err
	}
	for _, e := range found {
		if p := e.Partition; p >= 0 && p < len(seqs) && uint64(e.Seq) >= extents[p].First {
			seqs[p] = min(seqs[p], uint64(e.Seq))
		}
	}
	return true, nil
}
