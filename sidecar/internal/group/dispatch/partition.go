package dispatch

import (
	"iter"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
)

// Partition is a group's progress in one partition of its topic, with the events in memory.
type Partition struct {
	reader.Place

	Open       bool    // its events may be assigned
	Draining   bool    // it is about to go to another sidecar: the member that has it keeps it until then
	assignee   *Member // the member whose own partition it is, if any
	Generation int     // rises when everything fetched is forgotten

	// events are the fetched events from the lowest unsettled one on, ascending. Many of those
	// that settled behind it are dropped. ahead counts these, too.
	events []*Event
	Ahead  int
	trims  int // since settled entries were last dropped

	// Skip, carried, unsure and delays are the stored progress of seqs that are not fetched: the
	// settled seqs, the counted deliveries, the seqs whose last delivery may not have reached a
	// member, and when seqs are due.
	skip     []eventlog.SeqRange
	Attempts []eventlog.AttemptRange
	unsure   []eventlog.SeqRange
	delays   []delay

	Since   int64  // Since of the progress
	by      string // By of the progress
	unused  bool   // nothing of it has been settled
	Redrive redriveQueue

	PassedOver int64 // skipped events that are not counted yet
	Dirty      bool  // progress differs from what was last saved
}

// delay is an event that is to be delivered no earlier than when it is due.
type delay struct {
	seq    uint64
	wakeAt time.Time
}

// Restore starts from stored progress: nothing is fetched yet. Delays end by the present wall
// clock, even if it is set later.
func (p *Partition) Restore(pr eventlog.Progress, now time.Time) {
	p.forget()
	p.Next = max(pr.Cursor, 1)
	p.skip = slices.Clone(pr.Settled)
	p.Attempts = slices.Clone(pr.Attempts)
	p.unsure = slices.Clone(pr.Unsure)
	p.delays = make([]delay, len(pr.Delays))
	for i, d := range pr.Delays {
		p.delays[i] = delay{d.Seq, fromWall(d.Until, now)}
	}
	p.Since, p.by, p.unused = pr.Since, pr.By, pr.Unused != 0
	p.Redrive.restore(pr.Redrives, now)
	p.advance()
}

// All are the partition's events in memory, the redriven ones too.
func (p *Partition) All() iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for _, es := range [][]*Event{p.events, p.Redrive.entries} {
			for _, e := range es {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// PassOver moves on to seq next, and counts the unsettled seqs in between: retention or compaction
// has removed their events.
func (p *Partition) PassOver(next uint64) {
	for p.Next < next {
		end := next
		if len(p.skip) > 0 {
			end = min(end, p.skip[0].First)
		}
		p.PassedOver += int64(end - p.Next)
		p.Next = end
		p.advance()
	}
	p.advance()
}

// advance moves next past seqs that are settled.
func (p *Partition) advance() {
	for len(p.skip) > 0 && p.skip[0].First <= p.Next {
		p.Next = max(p.Next, p.skip[0].Last+1)
		p.skip = p.skip[1:]
	}
	for len(p.Attempts) > 0 && p.Attempts[0].Last < p.Next {
		p.Attempts = p.Attempts[1:]
	}
	for len(p.unsure) > 0 && p.unsure[0].Last < p.Next {
		p.unsure = p.unsure[1:]
	}
	for len(p.delays) > 0 && p.delays[0].seq < p.Next {
		p.delays = p.delays[1:]
	}
}

// Fetched takes in one event at or above next; those between next and it are gone from the log. nil
// means that it was settled before.
func (p *Partition) Fetched(rec *eventlog.Record) *Event {
	p.PassOver(rec.Seq)
	if rec.Seq < p.Next {
		return nil
	}
	e := &Event{Record: rec, Partition: p, Seq: rec.Seq, index: -1}
	if len(p.Attempts) > 0 && p.Attempts[0].First <= e.Seq { // advance has dropped the ranges below
		e.Attempts = p.Attempts[0].Attempts
	}
	e.unsure = len(p.unsure) > 0 && p.unsure[0].First <= e.Seq
	if len(p.delays) > 0 && p.delays[0].seq == e.Seq {
		e.wakeAt = p.delays[0].wakeAt
	}
	p.Passed(rec.Seq)
	p.advance()
	p.events = append(p.events, e)
	p.Ahead++
	return e
}

func (p *Partition) forget() { p.events, p.Ahead, p.trims = nil, 0, 0 }

// trim drops settled events from the front, and from time to time those behind it. So events that
// were acked behind an event that no member acks use no memory.
func (p *Partition) trim() {
	n := 0
	for n < len(p.events) && p.events[n].State == Settled {
		p.Ahead -= 1 + p.events[n].behind
		p.events[n] = nil
		n++
	}
	p.events = p.events[n:]
	if p.trims++; p.trims <= FewSettled || p.trims <= len(p.events)/2 {
		return
	}
	p.trims = 0
	var kept []*Event // another slice: a caller may be ranging over the entries
	for _, e := range p.events {
		if e.State != Settled {
			kept = append(kept, e)
		} else {
			kept[len(kept)-1].behind += 1 + e.behind // the first one is not settled
		}
	}
	p.events = kept
}

// fewSettled is how many settled events may stay between unsettled ones.
const FewSettled = 32

// Cursor is the lowest seq that is not settled.
func (p *Partition) Cursor() uint64 {
	if len(p.events) > 0 {
		return p.events[0].Seq
	}
	return p.Next
}

// Unsettled counts the events that are not settled. It counts every seq that is not fetched as an
// event.
func (p *Partition) Unsettled(x eventlog.Extent) int64 {
	var n int64
	for _, e := range p.events {
		if e.State != Settled {
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

// UnsettledFrom is unsettled, without events below the extent.
func (p *Partition) UnsettledFrom(x eventlog.Extent) int64 {
	n := p.Unsettled(x)
	for _, e := range p.events {
		if e.State != Settled && e.Seq < x.First {
			n--
		}
	}
	return n
}

// InFlightCount counts the events in flight.
func (p *Partition) InFlightCount() (n int) {
	for e := range p.All() {
		if e.State == InFlight {
			n++
		}
	}
	return n
}

// Busy reports whether events of the partition are in flight, or on their way to the dead letter
// topic.
func (p *Partition) Busy() bool {
	for e := range p.All() {
		if e.State == InFlight || e.State == DeadLettering {
			return true
		}
	}
	return false
}

// ProgressFrom is the progress that begins again at a seq. Redrives go on.
func (p *Partition) ProgressFrom(seq uint64, now time.Time) eventlog.Progress {
	redrives := p.Redrive.progress(now)
	for i := range redrives {
		redrives[i].Out = false
	}
	return eventlog.Progress{Cursor: seq, Since: now.UnixMilli(), By: p.by, Redrives: redrives}
}

// Progress is the progress to save under the owner's life.
func (p *Partition) Progress(life string, now time.Time) eventlog.Progress {
	p.trim()
	pr := eventlog.Progress{Cursor: p.Cursor(), Since: p.Since, By: p.by}
	if p.unused {
		pr.Unused = now.UnixMilli()
	}
	wait := func(seq uint64, due time.Time) {
		d := eventlog.Delay{Seq: seq}
		d.Until, d.Left = toWall(due, now)
		pr.Delays = append(pr.Delays, d)
	}
	at := pr.Cursor // every seq below is in pr
	for _, e := range p.events {
		if e.State == Settled {
			continue
		}
		if e.Seq > at {
			pr.Settled = append(pr.Settled, eventlog.SeqRange{First: at, Last: e.Seq - 1})
		}
		at = e.Seq + 1
		pr.Attempts = addAttempts(pr.Attempts, e.Seq, e.Attempts)
		if e.unsure {
			pr.Unsure = addSeq(pr.Unsure, e.Seq)
		}
		switch {
		case e.State == InFlight:
			pr.Out, pr.OutBy = addSeq(pr.Out, e.Seq), life
		case e.State == Delayed && len(pr.Delays) < maxDelays:
			wait(e.Seq, e.wakeAt)
		}
	}
	if p.Next > at {
		pr.Settled = append(pr.Settled, eventlog.SeqRange{First: at, Last: p.Next - 1})
	}
	pr.Settled = append(pr.Settled, p.skip...)
	for _, r := range p.Attempts {
		r.First = max(r.First, p.Next)
		pr.Attempts = append(pr.Attempts, r)
	}
	for _, r := range p.unsure {
		r.First = max(r.First, p.Next)
		pr.Unsure = append(pr.Unsure, r)
	}
	for _, d := range p.delays {
		wait(d.seq, d.wakeAt)
	}
	pr.Redrives = p.Redrive.progress(now)
	if slices.ContainsFunc(pr.Redrives, func(r eventlog.RedriveProgress) bool { return r.Out }) {
		pr.OutBy = life
	}
	return pr
}

// fromWall converts a stored time, in milliseconds since the epoch by the wall clock, with now's
// monotonic reading: the time stays as far away if the wall clock is set. 0 is none.
func fromWall(until int64, now time.Time) (due time.Time) {
	if until == 0 {
		return due
	}
	return now.Add(time.UnixMilli(until).Sub(now))
}

// toWall returns such a time by the wall clock of now, and how far away it is: at least 1 ms,
// since 0 means not known.
func toWall(due, now time.Time) (until, left int64) {
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

// Stored is a partition in the state of an epoch in the store.
func Stored(e *eventlog.Epoch) *Partition {
	p := &Partition{Place: reader.Place{Index: e.Partition}}
	p.Restore(e.Progress, time.Time{}) // nobody asks when its events are due
	return p
}

func Holds(seq uint64) func(eventlog.SeqRange) bool {
	return func(r eventlog.SeqRange) bool { return r.First <= seq && seq <= r.Last }
}
