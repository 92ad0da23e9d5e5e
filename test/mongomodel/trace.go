package mongomodel

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// traceBound is how many commands the trace holds.
const traceBound = 4096

// traced is a command in the trace.
type traced struct {
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
	records []traced
	oldest  int
}

// record adds a command to the trace, unless drivers send it on their own. The lock is held.
func (s *Set) record(c *call, outcome string) {
	if c.spec != nil && c.spec.monitoring {
		return
	}
	r := traced{At: time.Now(), From: c.conn.from, Member: c.member.index, Primary: c.member.primary, Command: c.name, On: c.db,
		Outcome: outcome}
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

// WriteTrace writes the last commands that were executed or lost, oldest first: one line a command,
// with times since the set began.
func (s *Set) WriteTrace(w io.Writer) {
	s.mu.Lock()
	last := slices.Concat(s.trace.records[s.trace.oldest:], s.trace.records[:s.trace.oldest])
	s.mu.Unlock()
	for _, r := range last {
		role := ""
		if r.Primary {
			role = "*"
		}
		fmt.Fprintf(w, "%12v %-8s m%d%-1s %-16s %-32s %s\n", r.At.Sub(s.began), r.From, r.Member, role, r.Command, r.On, r.Outcome)
	}
}
