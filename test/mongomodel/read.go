package mongomodel

import (
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

const (
	// firstBatch is how many documents a cursor's first answer has by default.
	firstBatch = 101
	// awaitTime is how long a tailable cursor waits for documents by default.
	awaitTime = time.Second
)

// cursor is an open cursor: a find's, a change stream's or a list of documents.
type cursor struct {
	ns       string
	level    string
	find     *store.Cursor
	changes  *changes
	rest     []bson.Raw
	tailable bool
	await    bool
}

func (cur *cursor) next(m *member, s *store.Store, limit int) (docs []bson.Raw, done bool, err error) {
	switch {
	case cur.find != nil:
		return cur.find.Next(s, limit, maxDocumentBytes)
	case cur.changes != nil:
		return cur.changes.next(m, s, limit)
	}
	size := 0
	for i, d := range cur.rest {
		if size += len(d); i == limit || i > 0 && size > maxDocumentBytes {
			docs, cur.rest = cur.rest[:i], cur.rest[i:]
			return docs, false, nil
		}
	}
	return cur.rest, true, nil
}

// integer is a field that is a whole number, or the value for one that is missing.
func integer(doc bson.Raw, name string, missing int64) (int64, error) {
	v, err := doc.LookupErr(name)
	if err != nil {
		return missing, nil
	}
	n, ok := v.AsInt64OK()
	if !ok || n < 0 {
		return 0, bad("%s is %s", name, v)
	}
	return n, nil
}

func (c *call) flag(name string) bool {
	v, _ := c.body.Lookup(name).BooleanOK()
	return v
}

func runFind(c *call) (bson.D, error) {
	if c.ns() == "local.oplog.rs" {
		return c.oplog()
	}
	r := store.FindRequest{Hint: c.body.Lookup("hint"), Tailable: c.flag("tailable")}
	filter, _ := c.body.Lookup("filter").DocumentOK()
	var err error
	if r.Filter, err = query.ParseFilter(filter); err != nil {
		return nil, err
	}
	if order, ok := c.body.Lookup("sort").DocumentOK(); ok {
		if natural, err := order.LookupErr("$natural"); err == nil {
			n, _ := natural.AsInt64OK()
			r.Natural = int(n)
		} else if r.Sort, err = query.ParseKeyPattern(order); err != nil {
			return nil, err
		}
	}
	if fields, ok := c.body.Lookup("projection").DocumentOK(); ok {
		if r.Projection, err = query.ParseProjection(fields); err != nil {
			return nil, err
		}
	}
	if r.Skip, err = integer(c.body, "skip", 0); err != nil {
		return nil, err
	}
	if r.Limit, err = integer(c.body, "limit", 0); err != nil {
		return nil, err
	}
	size, err := integer(c.body, "batchSize", firstBatch)
	if err != nil {
		return nil, err
	}
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	cur := &cursor{ns: c.ns(), tailable: r.Tailable, await: c.flag("awaitData")}
	if cur.find, err = view.Find(cur.ns, r); err != nil {
		return nil, err
	}
	return c.first(cur, view, size, c.flag("singleBatch"))
}

// first answers with a new cursor's first batch.
func (c *call) first(cur *cursor, view *store.Store, size int64, single bool) (bson.D, error) {
	cur.level = c.level
	docs, done := []bson.Raw(nil), false
	if size > 0 || single {
		var err error
		if docs, done, err = cur.next(c.member, view, int(min(max(size, 1), math.MaxInt32))); err != nil {
			return nil, err
		}
	}
	var id int64
	if !done && !single && (!cur.tailable || len(docs) > 0) {
		if len(c.member.cursors) >= maxCursors {
			return nil, bad("more than %d cursors are open", maxCursors)
		}
		id = c.set.nextCursor
		c.set.nextCursor++
		c.member.cursors[id] = cur
	}
	return cur.batch("firstBatch", id, docs), nil
}

func (cur *cursor) batch(name string, id int64, docs []bson.Raw) bson.D {
	if docs == nil {
		docs = []bson.Raw{}
	}
	out := bson.D{{Key: name, Value: docs}, {Key: "id", Value: id}, {Key: "ns", Value: cur.ns}}
	if cur.changes != nil {
		out = append(out, bson.E{Key: "postBatchResumeToken", Value: cur.changes.after.document()})
	}
	return bson.D{{Key: "cursor", Value: out}}
}

// listed answers with a cursor over documents.
func (c *call) listed(ns string, docs []bson.Raw) (bson.D, error) {
	size := int64(firstBatch)
	if options, ok := c.body.Lookup("cursor").DocumentOK(); ok {
		var err error
		if size, err = integer(options, "batchSize", firstBatch); err != nil {
			return nil, err
		}
	}
	return c.first(&cursor{ns: ns, rest: docs}, nil, size, false)
}

func runGetMore(c *call) (bson.D, error) {
	id, _ := c.body.Index(0).Value().AsInt64OK()
	cur := c.member.cursors[id]
	if cur == nil || cur.ns != c.ns() {
		return nil, &Error{Code: 43, CodeName: "CursorNotFound", Message: fmt.Sprintf("cursor id %d not found", id)}
	}
	size, err := integer(c.body, "batchSize", math.MaxInt32)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		size = math.MaxInt32
	}
	wait, err := integer(c.body, "maxTimeMS", awaitTime.Milliseconds())
	if err != nil {
		return nil, err
	}
	c.level = cur.level
	var docs []bson.Raw
	var done bool
	more := func() bool {
		if c.member.cursors[id] != cur {
			err = &Error{Code: 43, CodeName: "CursorNotFound", Message: fmt.Sprintf("cursor id %d not found", id)}
			return true
		}
		var view *store.Store
		if view, err = c.view(); err == nil {
			docs, done, err = cur.next(c.member, view, int(min(size, math.MaxInt32)))
		}
		return err != nil || done || len(docs) > 0
	}
	if !more() && cur.await {
		c.set.wait(time.Now().Add(time.Duration(wait)*time.Millisecond), more)
	}
	if err != nil || done {
		delete(c.member.cursors, id)
		id = 0
	}
	if err != nil {
		return nil, err
	}
	return cur.batch("nextBatch", id, docs), nil
}

func runKillCursors(c *call) (bson.D, error) {
	killed, missing := []int64{}, []int64{}
	values, err := c.body.Lookup("cursors").Array().Values()
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		id, _ := v.AsInt64OK()
		if c.member.cursors[id] == nil {
			missing = append(missing, id)
			continue
		}
		delete(c.member.cursors, id)
		killed = append(killed, id)
	}
	none := []int64{}
	return bson.D{{Key: "cursorsKilled", Value: killed}, {Key: "cursorsNotFound", Value: missing},
		{Key: "cursorsAlive", Value: none}, {Key: "cursorsUnknown", Value: none}}, nil
}

func runAggregate(c *call) (bson.D, error) {
	if c.collection == "" {
		return nil, unknown("an aggregation of a whole database")
	}
	stages, ok := c.body.Lookup("pipeline").ArrayOK()
	if !ok {
		return nil, &Error{Code: 14, CodeName: "TypeMismatch", Message: "'pipeline' option must be specified as an array"}
	}
	values, err := stages.Values()
	if err != nil {
		return nil, err
	}
	if len(values) > 0 {
		first, _ := values[0].DocumentOK()
		if spec, ok := first.Lookup("$changeStream").DocumentOK(); ok {
			return c.openChanges(spec, values[1:])
		}
	}
	p, err := query.ParsePipeline(stages)
	if err != nil {
		return nil, err
	}
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	docs, err := view.Aggregate(c.ns(), p, c.body.Lookup("hint"))
	if err != nil {
		return nil, err
	}
	return c.listed(c.ns(), docs)
}

func runCount(c *call) (bson.D, error) {
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	n, _ := view.Count(c.ns())
	return bson.D{{Key: "n", Value: int32(n)}}, nil
}
