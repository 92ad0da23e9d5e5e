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
	// that settled behind it are dropped. Ahead counts these, too.
	events []*Event
	Ahead  int
	trims  int // since settled events were last dropped

	// These are the stored progress of seqs that are not fetched: the settled seqs, the counted
	// deliveries, the seqs whose last delivery may not have reached a member, and the delays.
	skip     []eventlog.SeqRange
	Attempts []eventlog.AttemptRange
	unsure   []eventlog.SeqRange
	delays   []delay

	Since   int64  // Since of the progress
	by      string // By of the progress
	unused  bool   // nothing of it has been settled
	Redrive redrives

	reach reach

	PassedOver int64 // skipped events that are not counted yet
	Dirty      bool  // progress differs from what was last saved
}

// delay says that an event is delivered again at wakeAt at the earliest.
type delay struct {
	seq    uint64
	wakeAt time.Time
}

// All are the partition's events in memory, the redriven ones too.
func (p *Partition) All() iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for _, es := range [][]*Event{p.events, p.Redrive.events} {
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
		e.wakeAt, e.named = p.delays[0].wakeAt, true
	}
	e.named = e.named || e.Attempts > 0 || e.unsure
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
	var kept []*Event // another slice: a caller may be ranging over the events
	for _, e := range p.events {
		if e.State != Settled {
			kept = append(kept, e)
		} else {
			kept[len(kept)-1].behind += 1 + e.behind // the first one is not settled
		}
	}
	p.events = kept
}

// FewSettled is how many settled events may stay between unsettled ones.
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

// Oldest is when the lowest unsettled event was accepted; zero: it is not in memory.
func (p *Partition) Oldest() time.Time {
	for _, e := range p.events {
		if e.State != Settled {
			return time.UnixMilli(e.Record.AcceptedAt)
		}
	}
	return time.Time{}
}

// Count counts the events that are in one of the states.
func (p *Partition) Count(states ...State) (n int) {
	for e := range p.All() {
		if slices.Contains(states, e.State) {
			n++
		}
	}
	return n
}
