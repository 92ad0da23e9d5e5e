package pebblelog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The (ts, id) order of a topic. In nearly every log ts rises with seq, and then an entry for each event would say
// what the seqs say already. So an event is in order if its (ts, id) is above that of every event in order before
// it in its partition, and not far ahead of the clock. An event that is out of order has an s entry. Of the events
// in order about one in orderEvery has a c entry, the time index. A scan merges the partitions' events in order
// and the events out of order.

// orderEvery is after how many events of a partition the next one in order gets into the time index.
const orderEvery = 64

// maxAhead is how far ahead of its acceptance the ts of an event in order may be: one far ahead would put all
// later events out of order.
const maxAhead = 60_000

// order is what a partition knows of its events in order.
type order struct {
	last  eventlog.Point // of the last one
	since int            // seqs since the last one that is in the time index
}

// take decides on the next event.
func (o *order) take(r *eventlog.Record) (flags byte) {
	p := eventlog.Point{TS: r.TS, ID: r.ID}
	o.since++
	if r.TS-r.AcceptedAt > maxAhead || p.Compare(o.last) <= 0 && o.last != (eventlog.Point{}) {
		return flagOutOfOrder
	}
	if o.last == (eventlog.Point{}) || o.since >= orderEvery {
		o.since = 0
		flags = flagTimeIndexed
	}
	o.last = p
	return flags
}

// recoverOrder finds the last event in order of a partition that ends at a seq: it is less than orderEvery seqs behind
// the last one in the time index.
func (l *Log) recoverOrder(t *topic, p int, last uint64) (o order, err error) {
	prefix := orderPrefix(nil, t.id, p)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return order{}, failed(err)
	}
	defer it.Close()
	if !it.Last() {
		return order{since: orderEvery}, failed(it.Error())
	}
	o.last = pointAt(it.Key()[len(prefix):])
	d := decoder{rest: it.Value()}
	c, err := l.view().open(t, p, nil)
	if err != nil {
		return order{}, failed(err)
	}
	defer c.close()
	from := d.uvarint()
	o.since = int(last - min(last, from))
	var damage error // what is damaged has no place in the order of what can be read
	for r := range c.intact(from, &damage) {
		if r.Seq >= from+orderEvery {
			break
		}
		if at := r.point(); !r.outOfOrder && at.Compare(o.last) > 0 {
			o.last = at
		}
	}
	return o, failed(errors.Join(d.err, c.it.Error()))
}

// orderValue is the value of an entry of the time index.
func orderValue(b []byte, seq uint64) []byte { return binary.AppendUvarint(b, seq) }

// interval selects points of the (ts, id) order.
type interval struct {
	low, high         eventlog.Point
	lowOpen, highOpen bool // the point itself is excluded
	toEnd             bool // there is no upper bound
}

func intervalOf(q eventlog.ScanQuery) interval {
	x := interval{low: eventlog.Point{TS: q.MinTS}, toEnd: true, highOpen: true}
	if upper := q.Upper(); upper < math.MaxInt64 {
		x.high, x.toEnd = eventlog.Point{TS: upper + 1}, false
	}
	switch {
	case q.After == nil:
	case q.Descending && (x.toEnd || q.After.Compare(x.high) < 0):
		x.high, x.toEnd = *q.After, false
	case !q.Descending && q.After.Compare(x.low) >= 0:
		x.low, x.lowOpen = *q.After, true
	}
	return x
}

func (x interval) below(p eventlog.Point) bool {
	c := p.Compare(x.low)
	return c < 0 || c == 0 && x.lowOpen
}

func (x interval) above(p eventlog.Point) bool { return !x.toEnd && p.Compare(x.high) >= 0 }

// chain goes through a partition's events in order within an interval and a reach.
type chain struct {
	*cursor
	within     interval
	reach      reach
	descending bool
	times      *pebble.Iterator // the partition's time index
	current    *eventlog.Record // nil at the end
	at         eventlog.Point   // of current
}

func (c *chain) close() {
	c.cursor.close()
	c.times.Close()
}

// start goes to the first event, with the help of the time index.
func (c *chain) start() error {
	prefix := orderPrefix(nil, c.topic.id, c.partition)
	if !c.descending {
		seq := c.reach.floor + 1
		if c.times.SeekLT(appendPoint(prefix, c.within.low.TS, c.within.low.ID)) {
			seq = max(seq, c.entry())
		} else {
			c.times.First()
		}
		c.seek(seq)
		return c.settle()
	}
	from := c.reach.head
	if c.within.toEnd || !c.times.SeekGE(appendPoint(prefix, c.within.high.TS, c.within.high.ID)) {
		c.times.Last()
	} else {
		from = min(from, c.entry())
	}
	c.seekBack(from)
	return c.settle()
}

// entry is the seq that the time index has where it is.
func (c *chain) entry() uint64 {
	d := decoder{rest: c.times.Value()}
	seq := d.uvarint()
	c.err = cmp.Or(c.err, d.err)
	return seq
}

// settle goes on to the next event that counts, from the current one.
func (c *chain) settle() error {
	c.current = nil
	for c.seq() != 0 {
		seq := c.seq()
		if c.descending && seq <= c.reach.floor || !c.descending && seq > c.reach.head {
			return nil
		}
		if seq > c.reach.head || seq <= c.reach.floor {
			c.step()
			continue
		}
		r, err := c.event()
		if err != nil {
			return failed(err)
		}
		at := r.point()
		below, above := c.within.below(at), c.within.above(at)
		switch {
		case r.outOfOrder:
			c.pass(seq)
			continue
		case below && c.descending, above && !c.descending:
			return nil
		case !below && !above:
			c.current, c.at = r.Record, at
			return nil
		}
		c.step()
	}
	return failed(cmp.Or(c.err, c.times.Error()))
}

func (c *chain) step() {
	if c.descending {
		c.prev()
		return
	}
	c.next()
}

// pass goes on from an event out of order. All events in order are less than orderEvery seqs behind an entry of the time
// index, so it need not read what is between.
func (c *chain) pass(seq uint64) {
	if c.descending {
		for c.times.Valid() && c.entry() > seq {
			c.times.Prev()
		}
	} else {
		for c.times.Valid() && c.entry()+orderEvery <= seq {
			c.times.Next()
		}
	}
	switch {
	case !c.times.Valid():
		c.records = nil // there is none
	case c.entry() > seq:
		c.seek(c.entry())
	case c.entry()+orderEvery <= seq:
		c.seekBack(c.entry() + orderEvery - 1)
	default:
		c.step()
	}
}

// ordered merges a topic's events in the (ts, id) order.
type ordered struct {
	chains     []*chain
	strays     *pebble.Iterator // the events out of order
	stray      bool             // strays is at an event
	strayAt    eventlog.Point
	strayPlace location
	reaches    []reach
	events     fetcher // of the events out of order
	descending bool
	prefix     int
}

// order opens a merge within an interval.
func (v view) order(t *topic, reaches []reach, q eventlog.ScanQuery) (*ordered, error) {
	within := intervalOf(q)
	o := &ordered{reaches: reaches, descending: q.Descending, prefix: 1 + 4}
	var err error
	if o.strays, err = v.index.NewIter(scanBounds(t.id, q)); err != nil {
		return nil, failed(err)
	}
	o.events = fetcher{view: v, topic: t, index: o.strays, cursors: make([]*cursor, len(reaches))}
	for p, reach := range reaches {
		if reach.head <= reach.floor {
			continue
		}
		c, err := v.chain(t, p, o.strays)
		if err == nil {
			c.limit, c.within, c.reach, c.descending = reach.head, within, reach, q.Descending
			o.chains = append(o.chains, c)
			err = c.start()
		}
		if err != nil {
			o.close()
			return nil, failed(err)
		}
	}
	return o, o.stand(o.firstStray())
}

// chain opens a chain that sees the index as like sees it.
func (v view) chain(t *topic, p int, like *pebble.Iterator) (*chain, error) {
	times, err := cloneWithin(like, orderPrefix(nil, t.id, p))
	if err != nil {
		return nil, err
	}
	c, err := v.open(t, p, like)
	if err != nil {
		times.Close()
		return nil, err
	}
	return &chain{cursor: c, times: times}, nil
}

// cloneWithin opens an iterator of the keys with a prefix, that sees the index as like sees it.
func cloneWithin(like *pebble.Iterator, prefix []byte) (*pebble.Iterator, error) {
	return like.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}})
}

func (o *ordered) close() {
	for _, c := range o.chains {
		c.close()
	}
	o.events.close()
	o.strays.Close()
}

func (o *ordered) firstStray() bool {
	if o.descending {
		return o.strays.Last()
	}
	return o.strays.First()
}

// stand takes the iterator's position as the next event out of order that is durable.
func (o *ordered) stand(valid bool) error {
	for ; valid; valid = o.nextStray() {
		at, err := decodeLocation(o.strays.Value())
		if err != nil {
			return failed(err)
		}
		if at.seq <= o.reaches[at.partition].head {
			o.stray, o.strayPlace, o.strayAt = true, at, pointAt(o.strays.Key()[o.prefix:])
			return nil
		}
	}
	o.stray = false
	return failed(o.strays.Error())
}

func (o *ordered) nextStray() bool {
	if o.descending {
		return o.strays.Prev()
	}
	return o.strays.Next()
}

// before says that a point comes before another in the direction of the merge.
func (o *ordered) before(a, b eventlog.Point) bool { return (a.Compare(b) < 0) != o.descending }

// next is the next event; nil at the end.
func (o *ordered) next() (*eventlog.Record, error) {
	var first *chain
	for _, c := range o.chains {
		if c.current != nil && (first == nil || o.before(c.at, first.at)) {
			first = c
		}
	}
	if o.stray && (first == nil || o.before(o.strayAt, first.at)) {
		r, err := o.events.fetch(o.strayPlace)
		if err != nil {
			return nil, failed(err)
		}
		return r, o.stand(o.nextStray())
	}
	if first == nil {
		return nil, nil
	}
	r := first.current
	first.step()
	return r, first.settle()
}

// lowest lowers each partition's seq to the lowest one that q selects. An event in order is below all later ones in
// order, so each partition's first is enough; a search finds the first of the events out of order.
func (v view) lowest(t *topic, reaches []reach, q eventlog.ScanQuery, seqs []uint64) error {
	o, err := v.order(t, reaches, q)
	if err != nil {
		return err
	}
	defer o.close()
	for _, c := range o.chains {
		if c.current != nil {
			seqs[c.partition] = min(seqs[c.partition], c.seq())
		}
	}
	nodes, err := cloneWithin(o.strays, topicPrefix(nil, kindNode, t.id))
	if err != nil {
		return failed(err)
	}
	defer nodes.Close()
	for p, reach := range reaches {
		s := search{view: v, topic: t, partition: p, within: intervalOf(q), nodes: nodes}
		seq, err := s.first(levels-1, reach.floor+1, min(reach.head, seqs[p]-1))
		if err != nil {
			return err
		}
		if seq != 0 {
			seqs[p] = seq
		}
	}
	return nil
}
