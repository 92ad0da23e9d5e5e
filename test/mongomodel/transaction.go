package mongomodel

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// transaction is one on a primary, which keeps what it has written to itself until it commits.
type transaction struct {
	number  int64
	open    bool
	view    *store.Store // its snapshot with its own writes
	start   int          // the snapshot's position
	ops     []store.Entry
	claims  map[string]bool // that no other write may have meanwhile
	expires *time.Timer
}

func (t *transaction) holdsAny(claims []string) bool {
	return slices.ContainsFunc(claims, func(claim string) bool { return t.claims[claim] })
}

func (m *member) inTransactions() bool {
	for _, t := range m.transactions {
		if t.open {
			return true
		}
	}
	return false
}

// dropTransactions ends all transactions, which are in a primary's memory only.
func (m *member) dropTransactions() {
	for _, t := range m.transactions {
		t.end()
	}
	m.transactions, m.writtenAt = map[string]*transaction{}, map[string]int{}
}

func (t *transaction) end() {
	t.open = false
	t.view, t.ops, t.claims = nil, nil, nil
	t.expires.Stop()
}

func (s *Set) abort(m *member, t *transaction) {
	t.end()
	s.forgetWritten(m)
	s.wake()
}

func (s *Set) forgetWritten(m *member) {
	if !m.inTransactions() {
		clear(m.writtenAt)
	}
}

func noTransaction(number int64) *Error {
	return &Error{Code: 251, CodeName: "NoSuchTransaction",
		Message: fmt.Sprintf("Given transaction number %d does not match any in-progress transactions.", number)}
}

// runInTransaction executes a command that is part of a transaction. One that fails aborts it.
func (c *call) runInTransaction() (bson.D, error) {
	if c.starts {
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	t := c.member.transactions[c.session]
	if t == nil || t.number != c.number || !t.open {
		return nil, noTransaction(c.number)
	}
	c.txn = t
	reply, err := c.spec.run(c)
	for _, e := range reply {
		if e.Key == "writeErrors" {
			c.set.abort(c.member, t)
			return reply, err
		}
	}
	if err != nil {
		c.set.abort(c.member, t)
	}
	return reply, err
}

// begin begins the transaction: its snapshot is the primary's data now.
func (c *call) begin() error {
	m := c.member
	if err := c.checkNumber(); err != nil {
		return err
	}
	if t := m.transactions[c.session]; t != nil && t.number == c.number {
		return &Error{Code: 50911, CodeName: "Location50911",
			Message: fmt.Sprintf("Cannot start a transaction at given transaction number %d a transaction with the same number is in "+
				"progress or has ended", c.number)}
	}
	level := c.level
	c.level = "local"
	_, err := c.view() // waits for the data that its session has seen
	c.level = level
	if err != nil {
		return err
	}
	if !c.stillPrimary() {
		return notPrimary()
	}
	t := &transaction{number: c.number, open: true, view: m.data().Fork(), start: m.last(), claims: map[string]bool{}}
	t.view.Guard = func(e store.Entry) error {
		for _, claim := range t.view.Claims(e) {
			for _, o := range m.transactions {
				if o != t && o.open && o.claims[claim] {
					return writeConflict()
				}
			}
			if m.writtenAt[claim] > t.start {
				return writeConflict()
			}
			t.claims[claim] = true
		}
		return nil
	}
	t.expires = time.AfterFunc(c.set.opts.TransactionLifetime, func() {
		c.set.mu.Lock()
		defer c.set.mu.Unlock()
		if t.open {
			c.set.abort(m, t)
		}
	})
	m.transactions[c.session] = t
	return nil
}

func writeConflict() *Error {
	return &Error{Code: 112, CodeName: "WriteConflict",
		Message: "WriteConflict error: this operation conflicted with another operation. Please retry your operation or " +
			"multi-document transaction."}
}

func runCommit(c *call) (bson.D, error) {
	m := c.member
	t := m.transactions[c.session]
	if t == nil || t.number != c.number || !t.open {
		if r := m.sessions[c.session]; r != nil && r.number == c.number && r.committed {
			return nil, nil // it was committed before
		}
		return nil, noTransaction(c.number)
	}
	live := m.data()
	for _, op := range t.ops {
		if err := live.Apply(op); err != nil {
			return nil, err
		}
	}
	c.written = c.set.append(m, &entry{ops: t.ops, session: c.session, record: &record{number: c.number, committed: true}})
	for claim := range t.claims {
		m.writtenAt[claim] = c.written
	}
	c.set.abort(m, t) // which is over in any case
	return nil, nil
}

func runAbort(c *call) (bson.D, error) {
	t := c.member.transactions[c.session]
	if t == nil || t.number != c.number || !t.open {
		return nil, noTransaction(c.number)
	}
	c.set.abort(c.member, t)
	return nil, nil
}

func runEndSessions(c *call) (bson.D, error) {
	values, err := c.body.Index(0).Value().Array().Values()
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		session := string(v.Document().Lookup("id").Value)
		if t := c.member.transactions[session]; t != nil && t.open {
			c.set.abort(c.member, t)
		}
		delete(c.member.transactions, session)
	}
	return nil, nil
}
