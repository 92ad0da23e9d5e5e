package mongomodel

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// changes is the source of a change stream's cursor: the committed entries of the oplog that are
// about one collection.
type changes struct {
	ns       string
	lookup   bool // fullDocument: updateLookup
	wallTime bool
	pipeline *query.Pipeline

	position int   // every entry up to here was looked at
	after    token // and every change up to here was given out or left out
	over     bool  // the collection was dropped
}

// token is a place in the oplog: a change, or the place behind an entry.
type token struct {
	at bson.Timestamp
	op uint16 // which of the entry's changes, from 1; wholeEntry: all of them
}

const wholeEntry = math.MaxUint16

func (k token) compare(o token) int {
	return cmp.Or(cmp.Compare(k.at.T, o.at.T), cmp.Compare(k.at.I, o.at.I), cmp.Compare(k.op, o.op))
}

func (k token) document() bson.D {
	return bson.D{{Key: "_data", Value: fmt.Sprintf("%08X%08X%04X", k.at.T, k.at.I, k.op)}}
}

func parseToken(v bson.RawValue) (token, error) {
	doc, _ := v.DocumentOK()
	data, _ := doc.Lookup("_data").StringValueOK()
	raw, err := hex.DecodeString(data)
	if err != nil || len(raw) != 10 {
		return token{}, &Error{Code: 260, CodeName: "InvalidResumeToken", Message: fmt.Sprintf("Bad resume token: %s", v)}
	}
	n := func(from, to int) (n uint32) {
		for _, b := range raw[from:to] {
			n = n<<8 | uint32(b)
		}
		return n
	}
	return token{bson.Timestamp{T: n(0, 4), I: n(4, 8)}, uint16(n(8, 10))}, nil
}

func historyLost() *Error {
	return &Error{Code: 286, CodeName: "ChangeStreamHistoryLost",
		Message: "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
		Info:    bson.D{{Key: "errorLabels", Value: []string{"NonResumableChangeStreamError"}}}}
}

// openChanges answers an aggregation that begins with $changeStream.
func (c *call) openChanges(spec bson.Raw, stages []bson.RawValue) (bson.D, error) {
	if c.set.opts.NoChangeStreams {
		return nil, &Error{Code: 40573, CodeName: "Location40573", Message: "The $changeStream stage is only supported on replica sets"}
	}
	rest, err := bson.Marshal(bson.D{{Key: "stages", Value: stages}})
	if err != nil {
		return nil, err
	}
	s := &changes{ns: c.ns(), wallTime: c.set.opts.Version != "4.4", position: c.member.committed,
		after: token{c.member.time(c.member.committed), wholeEntry}}
	if s.pipeline, err = query.ParsePipeline(bson.Raw(rest).Lookup("stages").Array()); err != nil {
		return nil, err
	}
	if err := s.configure(spec, c.member); err != nil {
		return nil, err
	}
	size := int64(firstBatch)
	if o, ok := c.body.Lookup("cursor").DocumentOK(); ok {
		if size, err = integer(o, "batchSize", firstBatch); err != nil {
			return nil, err
		}
	}
	c.level = "majority"
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	return c.first(&cursor{ns: c.ns(), changes: s, await: true}, view, size, false)
}

func (s *changes) configure(spec bson.Raw, m *member) error {
	for k, v := range query.Fields(spec) {
		switch name := string(k); name {
		case "fullDocument":
			mode, _ := v.StringValueOK()
			if s.lookup = mode == "updateLookup"; !s.lookup && mode != "default" {
				return unknown("the fullDocument %q of a change stream", mode)
			}
		case "resumeAfter", "startAfter":
			k, err := parseToken(v)
			if err != nil {
				return err
			}
			s.after = k
		case "startAtOperationTime":
			t, i, ok := v.TimestampOK()
			if !ok {
				return bad("startAtOperationTime is %s", v)
			}
			s.after = token{at: bson.Timestamp{T: t, I: i}}
		default:
			return unknown("the change stream's %s", name)
		}
	}
	at, _ := slices.BinarySearchFunc(m.log, s.after.at,
		func(e *entry, at bson.Timestamp) int { return token{at: e.at}.compare(token{at: at}) })
	s.position = min(m.base+at, m.committed)
	if m.base > 0 && s.after.at.Before(m.log[0].at) {
		return historyLost()
	}
	return nil
}

// next returns the changes that were committed since, as far as they fit.
func (s *changes) next(m *member, view *store.Store, limit int) (docs []bson.Raw, done bool, err error) {
	if s.position < m.base {
		return nil, true, historyLost()
	}
	size := 0
	for ; s.position < m.committed; s.position++ {
		e := m.entry(s.position + 1)
		for i, op := range e.ops {
			at := token{e.at, uint16(i + 1)}
			if at.compare(s.after) <= 0 {
				continue
			}
			if len(docs) >= limit || size >= maxDocumentBytes || s.over {
				return docs, s.over, nil
			}
			made, err := s.events(e, at, op, view)
			if err != nil {
				return nil, true, err
			}
			for _, d := range made {
				docs, size = append(docs, d), size+len(d)
			}
			s.after = at
		}
		if whole := (token{e.at, wholeEntry}); whole.compare(s.after) > 0 {
			s.after = whole
		}
	}
	return docs, s.over, nil
}

// events are the documents of the stream for one change.
func (s *changes) events(e *entry, at token, op store.Entry, view *store.Store) ([]bson.Raw, error) {
	if op.NS != s.ns {
		return nil, nil
	}
	var kind string
	switch {
	case op.Op == store.Put && op.Before == nil:
		kind = "insert"
	case op.Op == store.Put && op.Replaced:
		kind = "replace"
	case op.Op == store.Put:
		kind = "update"
	case op.Op == store.Delete:
		kind = "delete"
	case op.Op == store.DropCollection:
		kind, s.over = "drop", true
	default:
		return nil, nil
	}
	doc := bson.D{{Key: "_id", Value: at.document()}, {Key: "operationType", Value: kind}, {Key: "clusterTime", Value: e.at}}
	if s.wallTime {
		doc = append(doc, bson.E{Key: "wallTime", Value: bson.NewDateTimeFromTime(e.wall)})
	}
	db, coll, _ := strings.Cut(op.NS, ".")
	ns := bson.E{Key: "ns", Value: bson.D{{Key: "db", Value: db}, {Key: "coll", Value: coll}}}
	key := bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: op.ID}}}
	switch kind {
	case "insert", "replace":
		doc = append(doc, bson.E{Key: "fullDocument", Value: op.Doc}, ns, key)
	case "update":
		if s.lookup {
			now, err := currentOf(view, op)
			if err != nil {
				return nil, err
			}
			doc = append(doc, bson.E{Key: "fullDocument", Value: now})
		}
		doc = append(doc, ns, key, bson.E{Key: "updateDescription", Value: difference(op.Before, op.Doc)})
	case "delete":
		doc = append(doc, ns, key)
	case "drop":
		doc = append(doc, ns)
	}
	all := []bson.D{doc}
	if s.over {
		all = append(all, bson.D{{Key: "_id", Value: at.document()}, {Key: "operationType", Value: "invalidate"},
			{Key: "clusterTime", Value: e.at}})
	}
	var raws []bson.Raw
	for _, d := range all {
		raw, err := bson.Marshal(d)
		if err != nil {
			return nil, err
		}
		raws = append(raws, raw)
	}
	return s.pipeline.Run(raws)
}

// currentOf is the document as it is now, or null.
func currentOf(view *store.Store, op store.Entry) (any, error) {
	id, err := bson.Marshal(bson.D{{Key: "_id", Value: op.ID}})
	if err != nil {
		return nil, err
	}
	filter, err := query.ParseFilter(id)
	if err != nil {
		return nil, err
	}
	docs, err := view.All(op.NS, store.FindRequest{Filter: filter})
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	return docs[0], nil
}

// difference is an update's description, by whole fields: the server also tells of fields within
// them.
func difference(before, after bson.Raw) bson.D {
	updated, removed := bson.D{}, []string{}
	for k, v := range query.Fields(after) {
		if was, err := before.LookupErr(string(k)); err != nil || was.Type != v.Type || !bytes.Equal(was.Value, v.Value) {
			updated = append(updated, bson.E{Key: string(k), Value: v})
		}
	}
	for k := range query.Fields(before) {
		if _, err := after.LookupErr(string(k)); err != nil {
			removed = append(removed, string(k))
		}
	}
	return bson.D{{Key: "updatedFields", Value: updated}, {Key: "removedFields", Value: removed}, {Key: "truncatedArrays", Value: bson.A{}}}
}

// ForgetOplog makes every member forget the committed entries except the newest, like an oplog that
// is too small for the writes: streams that are behind, or are resumed from before, lose their
// place.
func (s *Set) ForgetOplog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.forgetUntil(m.committed - 1)
	}
	s.wake()
}

// oplog answers a find in local.oplog.rs, of which drivers ask the oldest entry or the newest.
func (c *call) oplog() (bson.D, error) {
	m := c.member
	order, _ := c.body.Lookup("sort", "$natural").AsInt64OK()
	limit, err := integer(c.body, "limit", 0)
	if err != nil || limit != 1 || order == 0 || len(m.log) == 0 {
		return nil, unknown("a find in the oplog of other than its oldest or newest entry")
	}
	e := m.log[0]
	if order < 0 {
		e = m.log[len(m.log)-1]
	}
	doc, err := bson.Marshal(bson.D{{Key: "ts", Value: e.at}, {Key: "t", Value: e.term}, {Key: "op", Value: "n"},
		{Key: "wall", Value: bson.NewDateTimeFromTime(e.wall)}})
	if err != nil {
		return nil, err
	}
	return c.first(&cursor{ns: c.ns(), rest: []bson.Raw{doc}}, nil, 1, true)
}
