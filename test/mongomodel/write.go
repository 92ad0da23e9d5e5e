package mongomodel

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// record is a statement of a session that was executed: sending it again gets its result. It is
// replicated with the statement's entries.
type record struct {
	number    int64 // txnNumber
	statement int32
	result    bson.D
	committed bool    // it is a transaction's commit
	earlier   *record // of the same number
}

// checkNumber refuses a write that a newer one of its session has overtaken.
func (c *call) checkNumber() error {
	if r := c.member.sessions[c.session]; r != nil && r.number > c.number {
		return &Error{Code: 225, CodeName: "TransactionTooOld",
			Message: fmt.Sprintf("Retryable write with txnNumber %d is prohibited on this session because a newer one with txnNumber %d "+
				"has already started", c.number, r.number)}
	}
	if t := c.member.transactions[c.session]; t != nil && t.number < c.number {
		c.set.abort(c.member, t)
	}
	return nil
}

// done is the results of the command's statements that were executed when it was sent before.
func (c *call) done() map[int32]bson.D {
	if c.number == 0 || c.txn != nil {
		return nil
	}
	done := map[int32]bson.D{}
	for r := c.member.sessions[c.session]; r != nil && r.number == c.number; r = r.earlier {
		done[r.statement] = r.result
	}
	return done
}

var errBlocked = errors.New("an open transaction is in the way")

// write does op to the data, and appends its entries to the oplog with the result of the statement
// that it was. A plain write that conflicts with an open transaction waits for its end. An entry
// may be written beside an error.
func (c *call) write(statement int, op func(*store.Store) ([]store.Entry, bson.D, error)) (bson.D, error) {
	if c.txn != nil {
		entries, result, err := op(c.txn.view)
		c.txn.ops = append(c.txn.ops, entries...)
		return result, err
	}
	m := c.member
	for {
		claims, entries, result, err := m.tryWrite(op)
		if errors.Is(err, errBlocked) {
			if !c.set.wait(c.until, c.unlessBlocked(m.transactions)) {
				return nil, timedOut()
			}
			if !c.stillPrimary() {
				return nil, interrupted()
			}
			continue
		}
		if len(entries) > 0 {
			e := &entry{ops: entries}
			if c.number != 0 {
				e.session = c.session
				e.record = &record{number: c.number, statement: int32(statement), result: result}
				if c.name != "insert" || statement == 0 { // the documents of an insert are recorded together
					c.set.cost.Sessions++
				}
				if c.name == "findAndModify" { // its answer is kept, as 4.4 does it: in an entry of its own
					c.set.cost.Entries++
					c.set.cost.Bytes += len(entries[0].Doc)
				}
				if r := m.sessions[c.session]; r != nil && r.number == c.number {
					e.record.earlier = r
				}
			}
			c.written = c.set.append(m, e)
			m.wrote(claims)
		}
		return result, err
	}
}

// unlessBlocked is true once one of the transactions that were open has ended, or this is no
// primary any more.
func (c *call) unlessBlocked(transactions map[string]*transaction) func() bool {
	var open []*transaction
	for _, t := range transactions {
		if t.open {
			open = append(open, t)
		}
	}
	return func() bool {
		for _, t := range open {
			if !t.open {
				return true
			}
		}
		return !c.stillPrimary()
	}
}

// tryWrite does op to a primary's data, unless an open transaction is in the way.
func (m *member) tryWrite(op func(*store.Store) ([]store.Entry, bson.D, error)) ([]string, []store.Entry, bson.D, error) {
	live := m.data()
	if !m.inTransactions() {
		entries, result, err := op(live)
		return nil, entries, result, err
	}
	var claims []string
	fork := live.Fork()
	fork.Guard = func(e store.Entry) error {
		wants := fork.Claims(e)
		for _, t := range m.transactions {
			if t.open && t.holdsAny(wants) {
				return errBlocked
			}
		}
		claims = append(claims, wants...)
		return nil
	}
	entries, result, err := op(fork)
	if !errors.Is(err, errBlocked) {
		fork.Guard = nil
		m.live = fork
	}
	return claims, entries, result, err
}

// wrote remembers the writes of others for open transactions.
func (m *member) wrote(claims []string) {
	for _, claim := range claims {
		m.writtenAt[claim] = m.last()
	}
}

// statements executes the statements of a write command.
func (c *call) statements(do func(i int, doc bson.Raw) (bson.D, error)) (n, modified int, upserted []bson.D, reply bson.D, err error) {
	ordered := true
	if v, ok := c.body.Lookup("ordered").BooleanOK(); ok {
		ordered = v
	}
	if len(c.documents) == 0 || len(c.documents) > maxWriteBatch {
		return 0, 0, nil, nil, &Error{Code: 16, CodeName: "InvalidLength",
			Message: fmt.Sprintf("Write batch sizes must be between 1 and %d. Got %d operations.", maxWriteBatch, len(c.documents))}
	}
	done := c.done()
	var failed []bson.D
	for i, doc := range c.documents {
		if c.halt > 0 && i == c.halt {
			return 0, 0, nil, nil, errGone
		}
		result, retried := done[int32(i)]
		if !retried {
			result, err = do(i, doc)
		}
		if e := (*Error)(nil); errors.As(err, &e) && !endsCommand(e.Code) {
			failed = append(failed, append(bson.D{{Key: "index", Value: int32(i)}, {Key: "code", Value: e.Code}, {Key: "errmsg", Value: e.Message}},
				e.Info...))
			err = nil
			if ordered || c.txn != nil {
				break
			}
			continue
		} else if err != nil {
			return 0, 0, nil, nil, err
		}
		for _, e := range result {
			switch e.Key {
			case "n":
				n += e.Value.(int)
			case "nModified":
				modified += e.Value.(int)
			case "upserted":
				upserted = append(upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: e.Value}})
			}
		}
	}
	if len(failed) > 0 {
		reply = append(reply, bson.E{Key: "writeErrors", Value: failed})
	}
	return n, modified, upserted, reply, nil
}

// endsCommand tells errors of a whole command from errors of one of its statements.
func endsCommand(code int32) bool { return retryable(code) || code == 50 || code == 112 || code == 251 }

func runInsert(c *call) (bson.D, error) {
	n, _, _, reply, err := c.statements(func(i int, doc bson.Raw) (bson.D, error) {
		if query.Lookup(doc, "_id").Type == 0 {
			doc = query.WithID(doc, c.set.newID())
		}
		return c.write(i, func(s *store.Store) ([]store.Entry, bson.D, error) {
			entries, err := s.Insert(c.ns(), doc)
			return entries, bson.D{{Key: "n", Value: 1}}, err
		})
	})
	if err != nil {
		return nil, err
	}
	return append(bson.D{{Key: "n", Value: int32(n)}}, reply...), nil
}

// newID makes the id of a document that came without one.
func (s *Set) newID() bson.RawValue {
	id := make([]byte, 12)
	for i := range id {
		id[i] = byte(s.random.Uint32())
	}
	return bson.RawValue{Type: bson.TypeObjectID, Value: id}
}

var updateFields = []string{"q", "u", "multi", "upsert", "hint", "sort"}

func checkFields(doc bson.Raw, what string, fields []string) error {
	for k := range query.Fields(doc) {
		if !slices.Contains(fields, string(k)) {
			return unknown("the field %s of %s", k, what)
		}
	}
	return nil
}

func (c *call) updateRequest(doc bson.Raw, q, u string) (store.UpdateRequest, error) {
	r := store.UpdateRequest{Hint: doc.Lookup("hint"), NewID: c.set.newID}
	r.Multi, _ = doc.Lookup("multi").BooleanOK()
	r.Upsert, _ = doc.Lookup("upsert").BooleanOK()
	var err error
	filter, _ := doc.Lookup(q).DocumentOK()
	if r.Filter, err = query.ParseFilter(filter); err != nil {
		return r, err
	}
	if r.Update, err = query.ParseUpdate(doc.Lookup(u)); err != nil {
		return r, err
	}
	if order, ok := doc.Lookup("sort").DocumentOK(); ok {
		r.Sort, err = query.ParseKeyPattern(order)
	}
	return r, err
}

func runUpdate(c *call) (bson.D, error) {
	n, modified, upserted, reply, err := c.statements(func(i int, doc bson.Raw) (bson.D, error) {
		if err := checkFields(doc, "an update", updateFields); err != nil {
			return nil, err
		}
		r, err := c.updateRequest(doc, "q", "u")
		if err != nil {
			return nil, err
		}
		return c.write(i, func(s *store.Store) ([]store.Entry, bson.D, error) {
			u, err := s.Update(c.ns(), r)
			result := bson.D{{Key: "n", Value: u.Matched}, {Key: "nModified", Value: u.Modified}}
			if u.UpsertedID.Type != 0 {
				result = bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 0}, {Key: "upserted", Value: u.UpsertedID}}
			}
			return u.Entries, result, err
		})
	})
	if err != nil {
		return nil, err
	}
	out := bson.D{{Key: "n", Value: int32(n)}, {Key: "nModified", Value: int32(modified)}}
	if len(upserted) > 0 {
		out = append(out, bson.E{Key: "upserted", Value: upserted})
	}
	return append(out, reply...), nil
}

func runDelete(c *call) (bson.D, error) {
	n, _, _, reply, err := c.statements(func(i int, doc bson.Raw) (bson.D, error) {
		if err := checkFields(doc, "a delete", []string{"q", "limit", "hint"}); err != nil {
			return nil, err
		}
		limit, _ := doc.Lookup("limit").AsInt64OK()
		filter, err := query.ParseFilter(doc.Lookup("q").Document())
		if err != nil {
			return nil, err
		}
		return c.write(i, func(s *store.Store) ([]store.Entry, bson.D, error) {
			d, err := s.Delete(c.ns(), store.DeleteRequest{Filter: filter, Hint: doc.Lookup("hint"), Multi: limit == 0})
			return d.Entries, bson.D{{Key: "n", Value: d.Deleted}}, err
		})
	})
	if err != nil {
		return nil, err
	}
	return append(bson.D{{Key: "n", Value: int32(n)}}, reply...), nil
}

func runFindAndModify(c *call) (bson.D, error) {
	if result, ok := c.done()[0]; ok {
		return result, nil
	}
	if c.flag("remove") {
		return nil, bad("the option remove")
	}
	fields, _ := c.body.Lookup("fields").DocumentOK()
	projection, err := query.ParseProjection(fields)
	if err != nil {
		return nil, err
	}
	r, err := c.updateRequest(c.body, "query", "update")
	if err != nil {
		return nil, err
	}
	return c.write(0, func(s *store.Store) ([]store.Entry, bson.D, error) {
		u, err := s.Update(c.ns(), r)
		if err != nil {
			return u.Entries, nil, err
		}
		doc := u.Before
		if c.flag("new") {
			doc = u.After
		}
		last := bson.D{{Key: "n", Value: int32(u.Matched)}, {Key: "updatedExisting", Value: u.Matched > 0}}
		if u.UpsertedID.Type != 0 {
			last = bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: false}, {Key: "upserted", Value: u.UpsertedID}}
		}
		var value any // null where there is no document
		if doc != nil {
			value = projection.Apply(doc)
		}
		return u.Entries, bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: value}}, nil
	})
}
