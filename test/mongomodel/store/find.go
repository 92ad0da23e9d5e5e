package store

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

// A FindRequest selects the documents of a find.
type FindRequest struct {
	Filter *query.Filter
	Sort   *query.KeyPattern // may be nil
	// Natural is 1 or -1 for the order in which documents were inserted, without an index, else 0.
	Natural    int
	Hint       bson.RawValue
	Projection *query.Projection // may be nil
	Skip       int64
	Limit      int64 // 0: no limit
	Tailable   bool  // of a capped collection: the cursor goes on after the end
}

// Work counts the index keys and documents that finds and writes have examined, as in the server's
// explain, and the documents that they sorted in memory.
type Work struct{ Keys, Documents, Sorted int }

// Minus is what has been added since another count.
func (w Work) Minus(before Work) Work {
	return Work{w.Keys - before.Keys, w.Documents - before.Documents, w.Sorted - before.Sorted}
}

// A Cursor is the position of a find. It holds no data: each Next names the store to read from,
// which may have moved on since the last, as the server's cursors see later moments in later
// batches. The server may also yield within a batch, so that its parts see different moments; a
// Next sees one. A sort that no index serves is done once, at the first Next.
type Cursor struct {
	Examined Work

	ns         string
	generation int // of the collection; 0: it was not there
	request    FindRequest
	plan       plan
	// position is the record that was read last, and in an index its key there and the range.
	position uint64
	key      []bson.RawValue
	at       int
	sorted   []bson.Raw // the rest of a sort
	isSorted bool
	skipped  int64
	returned int64
}

// Find returns a cursor. The request is checked against the store: a bad hint is an error.
func (s *Store) Find(ns string, r FindRequest) (*Cursor, error) {
	cur := &Cursor{ns: ns, request: r}
	c := s.collections[ns]
	if c == nil {
		return cur, nil
	}
	cur.generation = c.generation
	if !r.Tailable {
		var err error
		cur.plan, err = c.plan(r)
		return cur, err
	}
	switch {
	case !c.capped:
		return nil, query.Errorf(query.BadValue, "error processing query: ns=%s: tailable cursor requested on non capped collection", ns)
	case !r.Sort.Empty() || r.Natural < 0:
		return nil, query.Errorf(query.BadValue, "error processing query: ns=%s: cannot use tailable option with a sort other than "+
			"{$natural: 1}", ns)
	}
	cur.plan = plan{ordered: true}
	return cur, nil
}

// Next returns up to limit documents, and no more of them than fit in bytes, though at least one.
// done says that the end was reached. After a full batch it may be false although nothing follows,
// as with the server. A tailable cursor ends only where it has never met a document. It is an error
// if its position was overwritten, or if its collection or index was dropped.
func (cur *Cursor) Next(s *Store, limit, bytes int) (docs []bson.Raw, done bool, err error) {
	c := s.collections[cur.ns]
	switch {
	case cur.generation == 0:
		return nil, true, nil
	case c == nil || c.generation != cur.generation:
		return nil, true, query.Errorf(query.QueryPlanKilled, "collection dropped. UUID of a former %s", cur.ns)
	}
	if s.Work != nil {
		defer func(before Work) {
			more := cur.Examined.Minus(before)
			s.Work.Keys += more.Keys
			s.Work.Documents += more.Documents
			s.Work.Sorted += more.Sorted
		}(cur.Examined)
	}
	if !cur.plan.ordered && !cur.isSorted {
		if err := cur.sort(c); err != nil {
			return nil, true, err
		}
	}
	batch := &batch{cursor: cur, limit: limit, bytes: bytes}
	if cur.isSorted {
		for len(cur.sorted) > 0 && batch.take(cur.sorted[0]) {
			cur.sorted = cur.sorted[1:]
		}
	} else {
		err = cur.scan(c, func(r record) bool { return batch.take(r.doc) })
	}
	atLimit := cur.request.Limit > 0 && cur.returned >= cur.request.Limit
	done = atLimit || !batch.full && (!cur.request.Tailable || cur.position == 0)
	return batch.docs, done || err != nil, err
}

// sort reads everything and sorts it.
func (cur *Cursor) sort(c *collection) error {
	var all []bson.Raw
	err := cur.scan(c, func(r record) bool {
		if cur.request.Filter.Match(r.doc) {
			all = append(all, r.doc)
		}
		return true
	})
	if err != nil {
		return err
	}
	cur.Examined.Sorted += len(all)
	cur.sorted, err = cur.request.Sort.Sort(all)
	cur.isSorted = true
	return err
}

// A batch is the result of one Next.
type batch struct {
	cursor       *Cursor
	limit, bytes int
	docs         []bson.Raw
	full         bool
}

// take looks at the next document and tells whether it was dealt with: a full batch leaves it to
// the next.
func (b *batch) take(doc bson.Raw) bool {
	cur := b.cursor
	r := cur.request
	if b.full || r.Limit > 0 && cur.returned >= r.Limit {
		b.full = true
		return false
	}
	if !cur.isSorted && !r.Filter.Match(doc) {
		return true
	}
	if cur.skipped < r.Skip {
		cur.skipped++
		return true
	}
	if len(b.docs) == b.limit || len(b.docs) > 0 && len(doc) > b.bytes {
		b.full = true
		return false
	}
	b.bytes -= len(doc)
	if r.Projection != nil {
		doc = r.Projection.Apply(doc)
	}
	b.docs = append(b.docs, doc)
	cur.returned++
	// A batch is full with its last document, whether or not another one follows: that was not
	// examined.
	b.full = len(b.docs) == b.limit
	return true
}

// scan calls take with the records after the cursor's position, and moves the position past each
// that take has taken.
func (cur *Cursor) scan(c *collection, take func(record) bool) error {
	if cur.plan.index == "" {
		return cur.scanRecords(c, take)
	}
	x := c.named(cur.plan.index)
	if x == nil {
		return query.Errorf(query.QueryPlanKilled, "query plan killed :: caused by :: index '%s' dropped", cur.plan.index)
	}
	ranges := cur.plan.ranges
	for ; cur.at < len(ranges); cur.at++ {
		at := cur.at
		if cur.plan.reverse {
			at = len(ranges) - 1 - at
		}
		if !cur.scanRange(c, x, ranges[at], take) {
			return nil
		}
		cur.key = nil
	}
	return nil
}

func (cur *Cursor) scanRecords(c *collection, take func(record) bool) error {
	if _, there := c.records.get(record{number: cur.position}); c.capped && cur.position > 0 && !there && !cur.plan.reverse {
		return query.Errorf(query.CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last "+
			"seen record id: RecordId(%d)", cur.position)
	}
	start := cur.position
	skip := func(r record) bool { return start > 0 && (r.number <= start) != cur.plan.reverse || r.number == start }
	c.records.scan(cur.plan.reverse, skip, func(r record) bool {
		if !take(r) {
			return false
		}
		cur.Examined.Documents++
		cur.position = r.number
		return true
	})
	return nil
}

// scanRange tells whether the range's end was reached.
func (cur *Cursor) scanRange(c *collection, x *index, r keyRange, take func(record) bool) bool {
	sign := 1
	if cur.plan.reverse {
		sign = -1
		r = keyRange{low: r.high, high: r.low, lowOpen: r.highOpen, highOpen: r.lowOpen}
	}
	last := indexEntry{cur.key, cur.position}
	skip := func(e indexEntry) bool {
		if last.key != nil && x.entries.compare(e, last)*sign <= 0 {
			return true
		}
		order := x.pattern.Compare(e.key, r.low) * sign
		return order < 0 || order == 0 && r.lowOpen
	}
	ended := true
	x.entries.scan(cur.plan.reverse, skip, func(e indexEntry) bool {
		if order := x.pattern.Compare(e.key, r.high) * sign; order > 0 || order == 0 && r.highOpen {
			return false
		}
		if rest := cur.plan.rest; within(e.key[len(e.key)-len(rest):], rest) {
			doc, _ := c.records.get(record{number: e.number})
			if !take(doc) {
				ended = false
				return false
			}
			cur.Examined.Documents++
		}
		cur.Examined.Keys++
		cur.position, cur.key = e.number, e.key
		return true
	})
	return ended
}

// within tells whether each value is within the bounds at its place.
func within(key []bson.RawValue, bounds []query.Bounds) bool {
	for i, b := range bounds {
		if !b.Contains(key[i]) {
			return false
		}
	}
	return true
}

func (c *collection) named(name string) *index {
	for _, x := range c.indexes {
		if x.name == name {
			return x
		}
	}
	return nil
}

// All returns everything that a find of the request reads.
func (s *Store) All(ns string, r FindRequest) ([]bson.Raw, error) {
	cur, err := s.Find(ns, r)
	if err != nil {
		return nil, err
	}
	docs, _, err := cur.Next(s, math.MaxInt, math.MaxInt)
	return docs, err
}

// Aggregate runs a pipeline over a collection. An index serves a $match that it starts with.
func (s *Store) Aggregate(ns string, p *query.Pipeline, hint bson.RawValue) ([]bson.Raw, error) {
	r := FindRequest{Filter: p.Leading(), Hint: hint}
	if r.Filter == nil {
		r.Filter = query.All
	}
	docs, err := s.All(ns, r)
	if err != nil {
		return nil, err
	}
	return p.Run(docs)
}
