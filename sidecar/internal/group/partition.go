package group

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
)

// partition is a group's place in one partition of its topic.
type partition struct {
	reader.Place

	own      ownerState
	epoch    uint64    // while it is not foreign: the one that this sidecar has
	life     string    // under which it was taken
	drainDue time.Time // while it is draining: when it is given up at the latest
	open     bool      // the turn under way may assign its events
	assignee *Member   // the member whose own partition it is, if any

	// Only balance uses these: the life that had it at the last query, and since when that is
	// known.
	owner      string
	ownerSince time.Time
	// tried is the highest epoch that a take without an answer may have inserted, or may still
	// insert; 0: no such epoch is above the latest.
	tried uint64

	generation int // rises when everything fetched is forgotten

	// entries are the fetched events from the lowest unsettled one on, ascending. Many of those
	// that settled behind it are dropped. ahead counts these, too.
	entries []*entry
	ahead   int
	trims   int // since settled entries were last dropped

	// skip, carried, unsure and delays are the stored progress of seqs that are not fetched: the
	// settled seqs, the counted deliveries, the seqs whose last delivery may not have reached a
	// member, and when seqs are due.
	skip    []eventlog.SeqRange
	carried []eventlog.AttemptRange
	unsure  []eventlog.SeqRange
	delays  []delay

	since   int64  // Since of the progress
	by      string // By of the progress
	unused  bool   // nothing of it has been settled
	redrive redriveQueue

	passed int64 // skipped events that are not counted yet
	dirty  bool  // progress differs from what was last saved
}

// partitions are all of a topic's.
type partitions []*partition

// owned is how many this sidecar delivers from.
func (ps partitions) owned() (n int) {
	for _, p := range ps {
		if p.own == owned {
			n++
		}
	}
	return n
}

func (ps partitions) any() bool {
	return slices.ContainsFunc(ps, func(p *partition) bool { return p.own != foreign })
}

func (ps partitions) dirty() bool {
	return slices.ContainsFunc(ps, func(p *partition) bool { return p.dirty })
}

// delay is an event that is to be delivered no earlier than when it is due.
type delay struct {
	seq uint64
	due time.Time
}

// restore starts from stored progress: nothing is fetched yet. Delays end by the present wall
// clock, even if it is set later.
func (p *partition) restore(pr eventlog.Progress, now time.Time) {
	p.forget()
	p.Next = max(pr.Cursor, 1)
	p.skip = slices.Clone(pr.Settled)
	p.carried = slices.Clone(pr.Attempts)
	p.unsure = slices.Clone(pr.Unsure)
	p.delays = make([]delay, len(pr.Delays))
	for i, d := range pr.Delays {
		p.delays[i] = delay{d.Seq, dueAt(d.Until, now)}
	}
	p.since, p.by, p.unused = pr.Since, pr.By, pr.Unused != 0
	p.redrive.restore(pr.Redrives, now)
	p.advance()
}

// passOver moves on to seq next, and counts the unsettled seqs in between: retention or compaction
// has removed their events.
func (p *partition) passOver(next uint64) {
	for p.Next < next {
		end := next
		if len(p.skip) > 0 {
			end = min(end, p.skip[0].First)
		}
		p.passed += int64(end - p.Next)
		p.Next = end
		p.advance()
	}
	p.advance()
}

// advance moves next past seqs that are settled.
func (p *partition) advance() {
	for len(p.skip) > 0 && p.skip[0].First <= p.Next {
		p.Next = max(p.Next, p.skip[0].Last+1)
		p.skip = p.skip[1:]
	}
	for len(p.carried) > 0 && p.carried[0].Last < p.Next {
		p.carried = p.carried[1:]
	}
	for len(p.unsure) > 0 && p.unsure[0].Last < p.Next {
		p.unsure = p.unsure[1:]
	}
	for len(p.delays) > 0 && p.delays[0].seq < p.Next {
		p.delays = p.delays[1:]
	}
}

// fetched takes in one event at or above next; those between next and it are gone from the log. nil
// means that it was settled before.
func (p *partition) fetched(rec *eventlog.Record) *entry {
	p.passOver(rec.Seq)
	if rec.Seq < p.Next {
		return nil
	}
	e := &entry{rec: rec, part: p, seq: rec.Seq, index: -1}
	if len(p.carried) > 0 && p.carried[0].First <= e.seq { // advance has dropped the ranges below
		e.attempts = p.carried[0].Attempts
	}
	e.unsure = len(p.unsure) > 0 && p.unsure[0].First <= e.seq
	if len(p.delays) > 0 && p.delays[0].seq == e.seq {
		e.due = p.delays[0].due
	}
	p.Passed(rec.Seq)
	p.advance()
	p.entries = append(p.entries, e)
	p.ahead++
	return e
}

func (p *partition) forget() { p.entries, p.ahead, p.trims = nil, 0, 0 }

// trim drops settled events from the front, and from time to time those behind it. So events that
// were acked behind an event that no member acks use no memory.
func (p *partition) trim() {
	n := 0
	for n < len(p.entries) && p.entries[n].state == settled {
		p.ahead -= 1 + p.entries[n].behind
		p.entries[n] = nil
		n++
	}
	p.entries = p.entries[n:]
	if p.trims++; p.trims <= fewSettled || p.trims <= len(p.entries)/2 {
		return
	}
	p.trims = 0
	var kept []*entry // another slice: a caller may be ranging over the entries
	for _, e := range p.entries {
		if e.state != settled {
			kept = append(kept, e)
		} else {
			kept[len(kept)-1].behind += 1 + e.behind // the first one is not settled
		}
	}
	p.entries = kept
}

// fewSettled is how many settled events may stay between unsettled ones.
const fewSettled = 32

// cursor is the lowest seq that is not settled.
func (p *partition) cursor() uint64 {
	if len(p.entries) > 0 {
		return p.entries[0].seq
	}
	return p.Next
}

// unsettled counts the events that are not settled. It counts every seq that is not fetched as an
// event.
func (p *partition) unsettled(x eventlog.Extent) int64 {
	var n int64
	for _, e := range p.entries {
		if e.state != settled {
			n++
		}
	}
	first := max(p.Next, x.First)
	if first > x.Head {
		return n
	}
	n += int64(x.Head - first + 1)
	for _, r := range p.skip {
		if r.Last >= first && r.First <= x.Head {
			n -= int64(min(r.Last, x.Head) - max(r.First, first) + 1)
		}
	}
	return n
}

// progress is the progress to save.
func (p *partition) progress(now time.Time) eventlog.Progress {
	p.trim()
	pr := eventlog.Progress{Cursor: p.cursor(), Since: p.since, By: p.by}
	if p.unused {
		pr.Unused = now.UnixMilli()
	}
	wait := func(seq uint64, due time.Time) {
		d := eventlog.Delay{Seq: seq}
		d.Until, d.Left = untilDue(due, now)
		pr.Delays = append(pr.Delays, d)
	}
	at := pr.Cursor // every seq below is in pr
	for _, e := range p.entries {
		if e.state == settled {
			continue
		}
		if e.seq > at {
			pr.Settled = append(pr.Settled, eventlog.SeqRange{First: at, Last: e.seq - 1})
		}
		at = e.seq + 1
		pr.Attempts = addAttempts(pr.Attempts, e.seq, e.attempts)
		if e.unsure {
			pr.Unsure = addSeq(pr.Unsure, e.seq)
		}
		switch {
		case e.state == inflight:
			pr.Out, pr.OutBy = addSeq(pr.Out, e.seq), p.life
		case e.state == delayed && len(pr.Delays) < maxDelays:
			wait(e.seq, e.due)
		}
	}
	if p.Next > at {
		pr.Settled = append(pr.Settled, eventlog.SeqRange{First: at, Last: p.Next - 1})
	}
	pr.Settled = append(pr.Settled, p.skip...)
	for _, r := range p.carried {
		r.First = max(r.First, p.Next)
		pr.Attempts = append(pr.Attempts, r)
	}
	for _, r := range p.unsure {
		r.First = max(r.First, p.Next)
		pr.Unsure = append(pr.Unsure, r)
	}
	for _, d := range p.delays {
		wait(d.seq, d.due)
	}
	pr.Redrives = p.redrive.progress(now)
	if slices.ContainsFunc(pr.Redrives, func(r eventlog.RedriveProgress) bool { return r.Out }) {
		pr.OutBy = p.life
	}
	return pr
}

// dueAt converts a stored time, in milliseconds since the epoch by the wall clock, with now's
// monotonic reading: the time stays as far away if the wall clock is set. 0 is none.
func dueAt(until int64, now time.Time) (due time.Time) {
	if until == 0 {
		return due
	}
	return now.Add(time.UnixMilli(until).Sub(now))
}

// untilDue returns such a time by the wall clock of now, and how far away it is: at least 1 ms,
// since 0 means not known.
func untilDue(due, now time.Time) (until, left int64) {
	d := due.Sub(now)
	return now.Add(d).UnixMilli(), max(d.Milliseconds(), 1)
}

// maxDelays bounds the stored delays of fetched events. After a takeover, events beyond that are
// delivered early.
const maxDelays = 1000

// addSeq appends a seq, and extends the last range if it can.
func addSeq(rs []eventlog.SeqRange, seq uint64) []eventlog.SeqRange {
	return addRange(rs, eventlog.SeqRange{First: seq, Last: seq})
}

// addRange appends a range that begins no lower than the last one, and extends the last one if it
// can.
func addRange(rs []eventlog.SeqRange, r eventlog.SeqRange) []eventlog.SeqRange {
	if n := len(rs); n > 0 && rs[n-1].Last+1 >= r.First {
		rs[n-1].Last = max(rs[n-1].Last, r.Last)
		return rs
	}
	return append(rs, r)
}

// addAttempts appends a seq's attempts, and extends the last range if it can.
func addAttempts(rs []eventlog.AttemptRange, seq uint64, attempts int) []eventlog.AttemptRange {
	if attempts == 0 {
		return rs
	}
	if n := len(rs); n > 0 && rs[n-1].Last+1 == seq && rs[n-1].Attempts == attempts {
		rs[n-1].Last = seq
		return rs
	}
	return append(rs, eventlog.AttemptRange{SeqRange: eventlog.SeqRange{First: seq, Last: seq}, Attempts: attempts})
}
