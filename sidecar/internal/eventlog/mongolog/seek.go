package mongolog

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
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
	c := l.concern(t.Name)
	extents := make([]eventlog.Extent, len(t.partitions))
	var err error
	if l.engine().scans {
		err = l.extentsByOneScan(ctx, c, t, extents)
	} else {
		err = forEach(ctx, len(extents), func(ctx context.Context, p int) (err error) {
			extents[p], err = l.extent(ctx, c, t, p)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	for p := range extents {
		// What may be lost with the primary may be given again below.
		if c.survives {
			t.partitions[p].raiseFloor(extents[p].First)
		}
	}
	return extents, nil
}

// floor is a seq below which nothing of the partition is readable any more, so
// that nobody goes over its stubs again and again. The first time it comes from
// heads, where sweeps leave it.
func (l *Log) floor(ctx context.Context, t *topic, p int) (uint64, error) {
	part := &t.partitions[p]
	if known := part.floor.Load(); known > 0 {
		return known, nil
	}
	heads, err := findAll[struct {
		Swept int64 `bson:"swept"`
	}](ctx, l, l.majority(headsName), inPartition(t.Name, p), options.Find())
	if err != nil {
		return 0, err
	}
	floor := uint64(1)
	for _, h := range heads {
		floor = max(floor, uint64(h.Swept+1))
	}
	part.raiseFloor(floor)
	return floor, nil
}

// extent is one partition's. The head is read first: what is appended in
// between is above it.
func (l *Log) extent(ctx context.Context, c concern, t *topic, p int) (eventlog.Extent, error) {
	head, err := l.storedHead(ctx, c, t.Name, p)
	if err != nil {
		return eventlog.Extent{}, err
	}
	floor, err := l.floor(ctx, t, p)
	if err != nil {
		return eventlog.Extent{}, err
	}
	filter := inPartition(t.Name, p, bson.E{Key: "seq", Value: bson.D{{Key: "$gte", Value: int64(floor)}}}, readable)
	first, err := findSeq(ctx, l, c.events, filter, 1)
	if first == 0 || first > head {
		first = head + 1
	}
	return eventlog.Extent{First: first, Head: head}, err
}

// extentsByOneScan reads the topic once for all partitions. heads is read
// before, for First not to be above what is appended in between, and after,
// for what is deleted in between.
func (l *Log) extentsByOneScan(ctx context.Context, c concern, t *topic, extents []eventlog.Extent) error {
	topic := bson.D{{Key: "topic", Value: t.Name}}
	heads := func(p int, seq uint64, _ bool) { extents[p].Head = max(extents[p].Head, seq) }
	if err := eachSeq(ctx, l, c.heads, topic, len(extents), heads); err != nil {
		return err
	}
	err := eachSeq(ctx, l, c.events, topic, len(extents), func(p int, seq uint64, gone bool) {
		e := &extents[p]
		e.Head = max(e.Head, seq)
		if !gone && (e.First == 0 || seq < e.First) {
			e.First = seq
		}
	})
	if err != nil {
		return err
	}
	for p := range extents {
		if extents[p].First == 0 {
			extents[p].First = extents[p].Head + 1
		}
	}
	return eachSeq(ctx, l, c.heads, topic, len(extents), heads)
}

// eachSeq visits the partition and seq of the documents that the filter
// selects, some of them twice if it has to begin again.
func eachSeq(ctx context.Context, l *Log, c *mongo.Collection, filter bson.D, partitions int, visit func(p int, seq uint64, gone bool)) error {
	fields := bson.D{{Key: "_id", Value: 0}, {Key: "partition", Value: 1}, {Key: "seq", Value: 1}, {Key: "gone", Value: 1}}
	return l.persist(ctx, func() error {
		cursor, err := c.Find(ctx, filter, options.Find().SetProjection(fields).SetBatchSize(maxBatch))
		if err != nil {
			return err
		}
		defer cursor.Close(ctx)
		for cursor.Next(ctx) {
			p, okP := cursor.Current.Lookup("partition").AsInt64OK()
			seq, okSeq := cursor.Current.Lookup("seq").AsInt64OK()
			gone, _ := cursor.Current.Lookup("gone").BooleanOK()
			if okP && okSeq && p >= 0 && p < int64(partitions) && seq > 0 {
				visit(int(p), uint64(seq), gone)
			}
		}
		return cursor.Err()
	})
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
	c := l.concern(t.Name)
	if l.engine().scans {
		filter, _ := scanFilter(bson.D{{Key: "topic", Value: t.Name}}, q)
		return seqs, eachSeq(ctx, l, c.events, filter, len(seqs), func(p int, seq uint64, _ bool) { seqs[p] = min(seqs[p], seq) })
	}
	// Whether a partition's events are gone through by seq or those of the
	// time by ts is for the server to find out: it tries both.
	return seqs, forEach(ctx, len(seqs), func(ctx context.Context, p int) error {
		from := bson.E{Key: "seq", Value: bson.D{{Key: "$gte", Value: int64(extents[p].First)}}}
		filter, _ := scanFilter(inPartition(t.Name, p, from), q)
		for _, one := range alternatives(filter) {
			seq, err := findSeq(ctx, l, c.events, one, 1)
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
