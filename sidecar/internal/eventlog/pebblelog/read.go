package pebblelog

import (
	"context"
	"errors"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// checkEvery is how many entries a loop handles between looks at its context.
const checkEvery = 256

// Read implements eventlog.Reader.
func (l *Log) Read(ctx context.Context, name string, p int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	t, part, err := l.enterPartition(ctx, name, p)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	for {
		head := part.head.Load()
		events, err := unlessDropped(func() ([]*eventlog.Record, error) { return l.readTo(ctx, t, p, from, head, b) })
		// Compaction may have removed the events for a later event, which is above the head that
		// was read.
		if err != nil || len(events) > 0 || part.head.Load() == head {
			return events, err
		}
	}
}

// readTo is Read among the events up to the given head.
func (l *Log) readTo(ctx context.Context, t *topic, p int, from, head uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	// It starts above the floor, so that it does not pass the tombstones below it.
	from = max(from, t.partitions[p].floor.Load()+1)
	if from > head {
		return nil, nil
	}
	page := newPage(b)
	for r, err := range l.records(ctx, t, p, from, head) {
		var damage *eventlog.DamageError
		if errors.As(err, &damage) && len(page.events) > 0 {
			break // only a page that would begin with the damaged event fails
		}
		if err != nil {
			return nil, err
		}
		if page.add(r.Record); page.full() {
			break
		}
	}
	return page.events, nil
}

// entry is a key and its value, until the next one is read.
type entry struct{ key, value []byte }

// entries goes through the entries of a database within bounds, until an error.
func entries(ctx context.Context, db iterable, bounds *pebble.IterOptions) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		it, err := db.NewIter(bounds)
		if err != nil {
			yield(entry{}, failed(err))
			return
		}
		defer it.Close()
		for n, valid := 0, it.First(); valid; n, valid = n+1, it.Next() {
			if n%checkEvery == 0 && ctx.Err() != nil {
				yield(entry{}, ctx.Err())
				return
			}
			value, err := it.ValueAndErr()
			if !yield(entry{it.Key(), value}, failed(err)) || err != nil {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(entry{}, failed(err))
		}
	}
}

// view is the index as it is, and the journal.
func (l *Log) view() view { return view{index: l.db, journal: l.journal} }

// records goes through a partition's events from one seq to another, both included, until an error.
func (l *Log) records(ctx context.Context, t *topic, p int, from, to uint64) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		c, err := l.view().open(t, p, nil)
		if err != nil {
			yield(stored{}, failed(err))
			return
		}
		defer c.close()
		c.limit = to
		n := 0
		for c.seek(from); c.seq() != 0 && c.seq() <= to; c.next() {
			var r stored
			if n++; n%checkEvery == 0 {
				err = ctx.Err()
			}
			if err == nil {
				r, err = c.event()
				err = failed(err)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		if c.err != nil {
			yield(stored{}, failed(c.err))
		}
	}
}

// page collects events up to its bounds.
type page struct {
	bounds eventlog.Bounds
	events []*eventlog.Record
	bytes  int
}

func newPage(b eventlog.Bounds) *page { return &page{bounds: b} }

func (p *page) add(r *eventlog.Record) {
	p.events = append(p.events, r)
	p.bytes += r.Size()
}

// full says that another event would exceed the bounds. An empty page is never full.
func (p *page) full() bool {
	return len(p.events) > 0 && (len(p.events) >= p.bounds.Events || p.bounds.Bytes > 0 && p.bytes >= p.bounds.Bytes)
}

// Lookup implements eventlog.Reader.
func (l *Log) Lookup(ctx context.Context, name, id string) (*eventlog.Record, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	r, err := l.lookup(t, id)
	return r.Record, err
}

// lookup is Lookup in a topic.
func (l *Log) lookup(t *topic, id string) (stored, error) {
	e, found, err := l.idEntry(t, id)
	if err != nil {
		return stored{}, err
	}
	if found && e.inLog() {
		part, err := l.partition(t, e.partition)
		if err != nil {
			return stored{}, err
		}
		if e.seq <= part.head.Load() {
			return l.event(t, e.location)
		}
	}
	return stored{}, eventlog.NotFound("event %q of topic %q", id, t.name)
}

// Locate implements eventlog.Reader.
func (l *Log) Locate(ctx context.Context, name, id string) (eventlog.Location, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return eventlog.Location{}, err
	}
	defer l.leave()
	r, notFound := l.lookup(t, id)
	if notFound == nil {
		return eventlog.Location{Partition: r.Partition, Seq: r.Seq, TS: r.TS}, nil
	}
	e, _, err := l.idEntry(t, id)
	if err == nil && !e.remnant {
		err = notFound
	}
	return eventlog.Location{Partition: e.partition, Seq: e.seq, TS: e.ts, Gone: true}, err
}

// event reads one event; ErrNotFound if retention has removed it.
func (l *Log) event(t *topic, at location) (stored, error) {
	return unlessDropped(func() (stored, error) {
		c, err := l.view().open(t, at.partition, nil)
		if err != nil {
			return stored{}, failed(err)
		}
		defer c.close()
		if c.find(at.seq) {
			r, err := c.event()
			return r, failed(err)
		}
		if c.err != nil {
			return stored{}, failed(c.err)
		}
		return stored{}, eventlog.NotFound("topic %q, partition %d, seq %d", t.name, at.partition, at.seq)
	})
}

// idEntry reads the entry of one id, or finds the event of a timed id. Retention removes the event and sets the entry at
// once, so the entry is looked up once more where there was no event.
func (l *Log) idEntry(t *topic, id string) (e idEntry, found bool, err error) {
	e, found, err = l.setEntry(t, id)
	ts, timed := eventlog.TimeOfID(id)
	if err != nil || found || !timed {
		return e, found, err
	}
	at, damage := unlessDropped(func() (location, error) { return l.timedEvent(t, eventlog.Point{TS: ts, ID: id}) })
	if at.seq != 0 {
		return idEntry{location: at}, true, nil
	}
	if e, found, err = l.setEntry(t, id); err != nil || found {
		return e, found, err
	}
	return idEntry{}, false, failed(damage)
}

// setEntry reads the entry of an id that has one.
func (l *Log) setEntry(t *topic, id string) (e idEntry, found bool, err error) {
	value, found, err := l.get(idKey(nil, t.id, id))
	if err != nil || !found {
		return idEntry{}, false, err
	}
	e, err = decodeIDEntry(value)
	return e, true, failed(err)
}

// idLookup looks up many ids as of one moment. Unlike Get it also uses the filters of the lowest
// level, since nearly all ids that are looked up are new.
type idLookup struct {
	log   *Log
	topic *topic
	it    *pebble.Iterator
	key   []byte
}

func (l *Log) lookUpIDs(t *topic) (*idLookup, error) {
	it, err := l.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, failed(err)
	}
	return &idLookup{log: l, topic: t, it: it}, nil
}

func (s *idLookup) find(id string) (e idEntry, found bool, err error) {
	if _, timed := eventlog.TimeOfID(id); timed {
		return s.log.idEntry(s.topic, id)
	}
	s.key = idKey(s.key[:0], s.topic.id, id)
	// A key is its own prefix here, so only the very same key matches.
	if !s.it.SeekPrefixGE(s.key) {
		return idEntry{}, false, failed(s.it.Error())
	}
	e, err = decodeIDEntry(s.it.Value())
	return e, true, failed(err)
}

func (s *idLookup) close() { s.it.Close() }
