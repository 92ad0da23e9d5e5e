package mongomodel

import (
	"fmt"
	"io"
	"time"
)

// traceBound is how many commands the trace holds.
const traceBound = 4096

// Record is a command in the trace.
type Record struct {
	At      time.Time
	From    string
	Member  int
	Primary bool
	Command string
	On      string // the collection, or the database
	Outcome string
}

// trace is the last commands, oldest first from the place that is overwritten next.
type trace struct {
	records []Record
	oldest  int
}

func (s *Set) record(c *call, outcome string) {
	if c.spec != nil && c.spec.monitoring {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note1(c, outcome)
}

// note1 is record with the lock held.
func (s *Set) note1(c *call, outcome string) {
	r := Record{At: time.Now(), From: c.conn.from, Member: c.member.index, Primary: c.member.primary, Command: c.name, On: c.db, Outcome: outcome}
	if c.collection != "" {
		r.On = c.ns()
	}
	t := &s.trace
	if len(t.records) < traceBound {
		t.records = append(t.records, r)
		return
	}
	t.records[t.oldest] = r
	t.oldest = (t.oldest + 1) % traceBound
}

// Trace returns the last commands that were executed or lost, oldest first.
func (s *Set) Trace() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append([]Record(nil), s.trace.records[s.trace.oldest:]...), s.trace.records[:s.trace.oldest]...)
}

// WriteTrace writes the trace for people, one line a command, with times since the set began.
func (s *Set) WriteTrace(w io.Writer) {
	for _, r := range s.Trace() {
		role := ""
		if r.Primary {
			role = "*"
		}
		fmt.Fprintf(w, "%12v %-8s m%d%-1s %-16s %-32s %s\n", r.At.Sub(s.began), r.From, r.Member, role, r.Command, r.On, r.Outcome)
	}
}
