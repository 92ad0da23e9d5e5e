package pebblelog

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// iterable is the index, or a snapshot of it.
type iterable interface {
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// view is an index and the journal that it is of.
type view struct {
	index   iterable
	journal *journal.Journal
}

// cursor goes through the events of one partition in either direction, run by run.
type cursor struct {
	journal   *journal.Journal
	topic     *topic
	partition int
	it        *pebble.Iterator // runs
	limit     uint64           // no run that begins above it is read
	window    window

	run     run
	bytes   []byte      // the run's records
	records []runRecord // those that are there
	i       int         // in records
	err     error
}

// open opens a cursor. Its iterator sees the index as it is now, or as like sees it.
func (v view) open(t *topic, p int, like *pebble.Iterator) (*cursor, error) {
	bounds := &pebble.IterOptions{LowerBound: eventKey(nil, t.id, p, 0), UpperBound: eventKey(nil, t.id, p+1, 0)}
	c := &cursor{journal: v.journal, topic: t, partition: p, limit: math.MaxUint64}
	var err error
	if like == nil {
		c.it, err = v.index.NewIter(bounds)
	} else {
		c.it, err = like.Clone(pebble.CloneOptions{IterOptions: bounds})
	}
	return c, err
}

func (c *cursor) close() {
	if c != nil {
		c.it.Close()
	}
}

// seq is of the current event; 0: there is none.
func (c *cursor) seq() uint64 {
	if c.err != nil || c.i < 0 || c.i >= len(c.records) {
		return 0
	}
	return c.records[c.i].seq
}

// seek goes to the first event at or above a seq.
func (c *cursor) seek(seq uint64) {
	if c.err == nil && len(c.records) > 0 && c.records[0].seq <= seq && seq <= c.records[len(c.records)-1].seq {
		c.i, _ = c.index(seq)
		return
	}
	if !c.it.SeekLT(eventKey(nil, c.topic.id, c.partition, seq+1)) {
		c.it.First()
	}
	for c.load(); c.more(); c.load() {
		if c.i, _ = c.index(seq); c.i < len(c.records) {
			return
		}
		c.it.Next()
	}
}

func (c *cursor) index(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(c.records, seq, func(x runRecord, seq uint64) int {
		switch {
		case x.seq < seq:
			return -1
		case x.seq > seq:
			return 1
		}
		return 0
	})
}

// seekBack goes to the last event at or below a seq.
func (c *cursor) seekBack(seq uint64) {
	c.it.SeekLT(eventKey(nil, c.topic.id, c.partition, seq+1))
	for c.load(); c.it.Valid() && c.err == nil; c.load() {
		i, found := c.index(seq)
		if !found {
			i--
		}
		if c.i = i; i >= 0 {
			return
		}
		c.it.Prev()
	}
}

// more says that there may be events upwards from the current run on.
func (c *cursor) more() bool { return c.err == nil && c.it.Valid() && c.run.first <= c.limit }

func (c *cursor) next() {
	for c.i++; c.i >= len(c.records) && c.more() && c.it.Next(); {
		c.load()
	}
	c.ended()
}

func (c *cursor) prev() {
	for c.i--; c.i < 0 && c.err == nil && c.it.Prev(); c.i = len(c.records) - 1 {
		c.load()
	}
	c.ended()
}

// ended takes the iterator's error over where there is no further event.
func (c *cursor) ended() {
	if c.i < 0 || c.i >= len(c.records) {
		c.err = errors.Join(c.err, c.it.Error())
	}
}

// load reads the run that the iterator is at.
func (c *cursor) load() {
	c.records, c.i = c.records[:0], 0
	if !c.it.Valid() {
		c.err = errors.Join(c.err, c.it.Error())
		return
	}
	value, err := c.it.ValueAndErr()
	if err == nil {
		c.run, err = decodeRun(c.topic.id, c.partition, c.it.Key(), value)
	}
	there := err == nil && c.run.live != 0 && c.run.first <= c.limit
	if there {
		c.bytes, err = c.window.read(c.journal, c.run.place, c.run.size)
	}
	if err == nil && there {
		c.records, err = runRecords(c.records, &c.run, c.bytes)
		if err != nil || len(c.records) != bits.OnesCount64(c.run.live) {
			err = damaged(c.journal, &c.run, c.run.first, 0)
		}
	}
	if err != nil {
		c.err = err
	}
}

// stored is an event, and whether it is out of order (order.go).
type stored struct {
	*eventlog.Record
	outOfOrder bool
}

// point is the event's place in the (ts, id) order.
func (r stored) point() eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

// intact goes upwards through the events from a seq on that can be read. damage gets the first error of the others.
func (c *cursor) intact(from uint64, damage *error) iter.Seq[stored] {
	return func(yield func(stored) bool) {
		valid := c.it.SeekLT(eventKey(nil, c.topic.id, c.partition, from+1)) || c.it.First()
		for ; valid; valid = c.it.Next() {
			c.err = nil
			c.load()
			*damage = cmp.Or(*damage, c.err)
			for c.i = range c.records {
				r, err := c.event()
				*damage = cmp.Or(*damage, err)
				if err == nil && r.Seq >= from && !yield(r) {
					return
				}
			}
		}
	}
}

// event is the current event.
func (c *cursor) event() (stored, error) {
	x := &c.records[c.i]
	if !x.whole(identitySum(c.run.topic, c.partition, c.run.first), c.bytes) {
		return stored{}, damaged(c.journal, &c.run, x.seq, x.start)
	}
	r, err := decodeRecord(c.topic.name, c.partition, x.seq, x.event)
	if err != nil {
		return stored{}, err
	}
	return stored{r, x.event[0]&flagOutOfOrder != 0}, nil
}

// find goes to the event with a seq, and reports whether it is there.
func (c *cursor) find(seq uint64) bool {
	if i, found := c.index(seq); found && c.err == nil {
		c.i = i
		return true
	}
	if c.it.Valid() && c.run.last()+1 == seq { // one step costs less than a seek
		c.it.Next()
	} else {
		c.it.SeekLT(eventKey(nil, c.topic.id, c.partition, seq+1))
	}
	c.load()
	i, found := c.index(seq)
	c.i = i
	return found && c.err == nil
}

// windowSize is how much a window reads at once where runs follow one another in the journal.
const windowSize = 64 << 10

// window reads the journal, ahead where reads follow one another closely.
type window struct {
	start uint64
	bytes []byte
	buf   []byte
	end   uint64 // of the last read
}

// read returns bytes that stay as they are until the next call.
func (w *window) read(j *journal.Journal, at uint64, n int) ([]byte, error) {
	near := at >= w.end && at-w.end < windowSize/16 && w.end != 0
	if w.end = at + uint64(n); at >= w.start && w.end <= w.start+uint64(len(w.bytes)) {
		return w.bytes[at-w.start : w.end-w.start], nil
	}
	size := n
	if near {
		size = max(n, windowSize)
	}
	if cap(w.buf) < size {
		w.buf = make([]byte, size)
	}
	read, err := j.Read(w.buf[:size], at, n)
	if err != nil {
		w.bytes = nil
		return nil, err
	}
	w.start, w.bytes = at, w.buf[:read]
	return w.bytes[:n], nil
}
