package pebblelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// Scan implements eventlog.Reader.
func (l *Log) Scan(ctx context.Context, name string, q eventlog.ScanQuery, b eventlog.Bounds) (page []*eventlog.Record, err error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return unlessDropped(func() ([]*eventlog.Record, error) {
		reaches, err := l.reaches(t)
		if err != nil {
			return nil, err
		}
		return l.view().scan(ctx, t, reaches, q, b)
	})
}

// scan is Scan among the events within reach.
func (v view) scan(ctx context.Context, t *topic, reaches []reach, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if q.Key != nil {
		return v.scanKey(ctx, t, reaches, q, b)
	}
	o, err := v.order(t, reaches, q)
	if err != nil {
		return nil, err
	}
	defer o.close()
	page := newPage(b)
	for n := 0; !page.full(); n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r, err := o.next()
		if err != nil {
			return nil, err
		}
		if r == nil {
			break
		}
		page.add(r)
	}
	return page.events, nil
}

// scanKey walks the (ts, id) index of one key, and fetches the events that it names.
func (v view) scanKey(ctx context.Context, t *topic, reaches []reach, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	index, err := v.index.NewIter(scanBounds(t.id, q))
	if err != nil {
		return nil, failed(err)
	}
	defer index.Close()
	step, valid := index.Next, index.First()
	if q.Descending {
		step, valid = index.Prev, index.Last()
	}
	events := fetcher{view: v, topic: t, index: index, cursors: make([]*cursor, len(reaches))}
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
		if at.seq > reaches[at.partition].head {
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

// unlessDropped repeats a read that came upon a segment of the journal that was dropped since it began: by then
// the index has other places for the events.
func unlessDropped[T any](read func() (T, error)) (T, error) {
	for {
		result, err := read()
		if !errors.Is(err, journal.ErrDropped) {
			return result, err
		}
	}
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

// fetcher reads events in nearly ascending or descending seq order, with one cursor per partition. The cursors see
// the index as the index iterator sees it, so they find every event that it names.
type fetcher struct {
	view
	topic   *topic
	index   *pebble.Iterator
	cursors []*cursor
}

func (f *fetcher) fetch(at location) (*eventlog.Record, error) {
	c := f.cursors[at.partition]
	if c == nil {
		var err error
		if c, err = f.open(f.topic, at.partition, f.index); err != nil {
			return nil, err
		}
		f.cursors[at.partition] = c
	}
	if !c.find(at.seq) {
		return nil, cmp.Or(c.err,
			fmt.Errorf("topic %q, partition %d: the index names seq %d, which is missing", f.topic.name, at.partition, at.seq))
	}
	r, err := c.event()
	return r.Record, err
}

func (f *fetcher) close() {
	for _, c := range f.cursors {
		c.close()
	}
}

// Seek implements eventlog.Reader.
func (l *Log) Seek(ctx context.Context, name string, p eventlog.Position) ([]uint64, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return unlessDropped(func() ([]uint64, error) { return l.seek(t, p) })
}

func (l *Log) seek(t *topic, p eventlog.Position) ([]uint64, error) {
	reaches, err := l.reaches(t)
	if err != nil {
		return nil, err
	}
	seqs := make([]uint64, len(reaches))
	for i := range seqs {
		seqs[i] = reaches[i].head + 1
	}
	switch p.From {
	case wire.FromLatest:
		return seqs, nil
	case wire.FromEarliest:
		for i := range seqs {
			seqs[i] = min(seqs[i], reaches[i].floor+1)
		}
		return seqs, nil
	case wire.FromTS:
		return seqs, l.view().lowest(t, reaches, eventlog.ScanQuery{MinTS: p.TS}, seqs)
	case wire.FromAfterID:
		return seqs, l.view().lowest(t, reaches, eventlog.ScanQuery{MinTS: p.After.TS, After: &p.After}, seqs)
	}
	return nil, fmt.Errorf("position %q is not one of %s, %s, %s and %s",
		p.From, wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID)
}
