package pebblelog

import (
	"context"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Scan implements eventlog.Reader: it walks the (ts, id) index, of the topic or of one key, and
// fetches the events that it names.
func (l *Log) Scan(ctx context.Context, name string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	t, heads, err := l.enterHeads(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return scan(ctx, l.db, t, heads, q, b)
}

// iterable is a database, or a snapshot of one.
type iterable interface {
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// scan is Scan among the events up to the heads.
func scan(ctx context.Context, db iterable, t *topic, heads []uint64, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	index, err := db.NewIter(scanBounds(t.id, q))
	if err != nil {
		return nil, failed(err)
	}
	defer index.Close()
	step, valid := index.Next, index.First()
	if q.Descending {
		step, valid = index.Prev, index.Last()
	}
	events := fetcher{topic: t, index: index, its: make([]*pebble.Iterator, len(heads))}
	defer events.close()
	page := newPage(b)
	for seen := 0; valid && !page.full(); valid, seen = step(), seen+1 {
		if seen%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at, err := decodeLocation(index.Value())
		if err != nil {
			return nil, failed(err)
		}
		if at.seq > heads[at.partition] {
			continue // not durable yet
		}
		r, err := events.fetch(at)
		if err != nil {
			return nil, failed(err)
		}
		page.add(r)
	}
	return page.events, failed(index.Error())
}

// scanBounds are the bounds of the index entries that q selects.
func scanBounds(topic uint32, q eventlog.ScanQuery) *pebble.IterOptions {
	prefix := topicPrefix(nil, kindTime, topic)
	if q.Key != nil {
		prefix = keyPrefix(nil, kindKeyTime, topic, *q.Key)
	}
	within := func(ts int64, id string) []byte { return appendPoint(prefix[:len(prefix):len(prefix)], ts, id) }
	o := &pebble.IterOptions{LowerBound: within(q.MinTS, ""), UpperBound: after(prefix)}
	if upper := q.Upper(); upper < math.MaxInt64 {
		o.UpperBound = within(upper+1, "")
	}
	if q.After == nil {
		return o
	}
	// The point itself is excluded: upwards that is one zero byte behind it.
	point := within(q.After.TS, q.After.ID)
	switch {
	case q.Descending && string(point) < string(o.UpperBound):
		o.UpperBound = point
	case !q.Descending && string(point) >= string(o.LowerBound):
		o.LowerBound = append(point, 0)
	}
	if string(o.LowerBound) > string(o.UpperBound) {
		o.UpperBound = o.LowerBound
	}
	return o
}

// fetcher reads events in nearly ascending or descending seq order, with one iterator per
// partition. The iterators see the store as the index iterator sees it, so they find every event
// that the index names.
type fetcher struct {
	topic *topic
	index *pebble.Iterator
	its   []*pebble.Iterator
	key   []byte
}

func (f *fetcher) fetch(at location) (*eventlog.Record, error) {
	it := f.its[at.partition]
	if it == nil {
		var err error
		if it, err = f.open(at.partition); err != nil {
			return nil, err
		}
		f.its[at.partition] = it
	}
	// The next event is one step away; a seek costs several times as much.
	found := false
	if it.Valid() {
		switch here := seqOf(it.Key()); at.seq {
		case here + 1:
			found = it.Next() && seqOf(it.Key()) == at.seq
		case here - 1:
			found = it.Prev() && seqOf(it.Key()) == at.seq
		}
	}
	if !found {
		f.key = eventKey(f.key[:0], f.topic.id, at.partition, at.seq)
		found = it.SeekGE(f.key) && seqOf(it.Key()) == at.seq
	}
	if err := it.Error(); err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("topic %q, partition %d: the index names seq %d, which is missing", f.topic.name, at.partition, at.seq)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	return decodeRecord(f.topic.name, at.partition, at.seq, value)
}

func (f *fetcher) open(p int) (*pebble.Iterator, error) {
	return f.index.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{
		LowerBound: eventKey(nil, f.topic.id, p, 0),
		UpperBound: eventKey(nil, f.topic.id, p+1, 0),
	}})
}

func (f *fetcher) close() {
	for _, it := range f.its {
		if it != nil {
			it.Close()
		}
	}
}

// Seek implements eventlog.Reader. From a ts or an event on it reads the whole rest of the (ts, id)
// index: seqs need not rise with ts, so any entry may name a partition's lowest.
func (l *Log) Seek(ctx context.Context, name string, p eventlog.Position) ([]uint64, error) {
	t, heads, err := l.enterHeads(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	seqs := make([]uint64, len(heads))
	for i := range seqs {
		seqs[i] = heads[i] + 1
	}
	switch p.From {
	case wire.FromLatest:
		return seqs, nil
	case wire.FromEarliest:
		for i := range seqs {
			seqs[i] = min(seqs[i], t.partitions[i].floor.Load()+1)
		}
		return seqs, nil
	case wire.FromTS:
		return seqs, l.lowest(ctx, t, eventlog.ScanQuery{MinTS: p.TS}, seqs)
	case wire.FromAfterID:
		return seqs, l.lowest(ctx, t, eventlog.ScanQuery{MinTS: p.After.TS, After: &p.After}, seqs)
	}
	return nil, fmt.Errorf("position %q is not one of %s, %s, %s and %s",
		p.From, wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID)
}

// lowest lowers each partition's seq to the lowest one that q selects.
func (l *Log) lowest(ctx context.Context, t *topic, q eventlog.ScanQuery, seqs []uint64) error {
	for e, err := range entries(ctx, l.db, scanBounds(t.id, q)) {
		if err != nil {
			return err
		}
		at, err := decodeLocation(e.value)
		if err != nil {
			return failed(err)
		}
		seqs[at.partition] = min(seqs[at.partition], at.seq)
	}
	return nil
}
