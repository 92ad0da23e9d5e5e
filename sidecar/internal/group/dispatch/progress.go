package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
)

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

// Progress is the progress to save under the owner's life.
func (p *Partition) Progress(life string, now time.Time) eventlog.Progress {
	p.trim()
	pr := eventlog.Progress{Cursor: p.Cursor(), Since: p.Since, By: p.by}
	if p.unused {
		pr.Unused = now.UnixMilli()
	}
	wait := func(seq uint64, at time.Time) {
		d := eventlog.Delay{Seq: seq}
		d.Until, d.Left = toWall(at, now)
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

// ProgressFrom is the progress that begins again at a seq. Redrives go on.
func (p *Partition) ProgressFrom(seq uint64, now time.Time) eventlog.Progress {
	redrives := p.Redrive.progress(now)
	for i := range redrives {
		redrives[i].Out = false
	}
	return eventlog.Progress{Cursor: seq, Since: now.UnixMilli(), By: p.by, Redrives: redrives}
}

// Stored is a partition in the state of an epoch in the store.
func Stored(e *eventlog.Epoch) *Partition {
	p := &Partition{Place: reader.Place{Index: e.Partition}}
	p.Restore(e.Progress, time.Time{}) // nobody asks when its delays end
	return p
}

// Out counts the events that were in flight when the progress was saved.
func Out(pr *eventlog.Progress) (n int) {
	for _, r := range pr.Out {
		n += int(r.Last - r.First + 1)
	}
	for _, r := range pr.Redrives {
		if r.Out {
			n++
		}
	}
	return n
}

// maxDelays bounds the stored delays of fetched events. After a takeover, events beyond that are
// delivered early.
const maxDelays = 1000

// Inherit is the progress with which the next owner continues after an earlier one. A delivery
// under way counts an attempt, unless the owner ended in order, with that as its last save. A delay
// lasts no longer than it would have for that owner, whose clock may be ahead. head is the partition's
// head, read after that owner was fenced: it can have delivered no event above it.
func Inherit(pr eventlog.Progress, ended func(life string) bool, head uint64, now time.Time) eventlog.Progress {
	if pr.ReachBy != "" && !ended(pr.ReachBy) {
		countUnnamed(&pr, min(pr.Reach, head))
	}
	pr.Reach, pr.ReachBy = 0, ""
	over := pr.OutBy != "" && ended(pr.OutBy)
	switch {
	case len(pr.Out) == 0:
	case over:
		pr.Attempts = lessOne(pr.Attempts, pr.Out)
	default:
		pr.Unsure = union(pr.Unsure, pr.Out)
	}
	pr.Delays, pr.Redrives = slices.Clone(pr.Delays), slices.Clone(pr.Redrives)
	for i := range pr.Delays {
		pr.Delays[i].Until = noLater(pr.Delays[i].Until, pr.Delays[i].Left, now)
	}
	for i := range pr.Redrives {
		r := &pr.Redrives[i]
		switch {
		case !r.Out:
		case over:
			r.Attempts--
		default:
			r.Unsure = true
		}
		r.Out = false
		r.Until = noLater(r.Until, r.Left, now)
	}
	pr.Out, pr.OutBy = nil, ""
	return pr
}

// noLater is the earlier of the saved time until and the time when the saved rest, left, has passed
// from now on.
func noLater(until, left int64, now time.Time) int64 {
	return min(until, now.UnixMilli()+left)
}

// lessOne takes one attempt from the seqs of the ranges, which are ascending.
func lessOne(attempts []eventlog.AttemptRange, ranges []eventlog.SeqRange) (less []eventlog.AttemptRange) {
	for _, a := range attempts {
		for seq := a.First; seq <= a.Last; seq++ {
			n := a.Attempts
			i, _ := slices.BinarySearchFunc(ranges, seq, func(r eventlog.SeqRange, seq uint64) int { return cmp.Compare(r.Last, seq) })
			if i < len(ranges) && ranges[i].First <= seq {
				n--
			}
			less = addAttempts(less, seq, n)
		}
	}
	return less
}

// union is the seqs of both, ascending and disjoint.
func union(a, b []eventlog.SeqRange) (all []eventlog.SeqRange) {
	both := slices.Concat(a, b)
	slices.SortFunc(both, func(x, y eventlog.SeqRange) int { return cmp.Compare(x.First, y.First) })
	for _, r := range both {
		all = addRange(all, r)
	}
	return all
}

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

// Holds finds the range that holds a seq.
func Holds(seq uint64) func(eventlog.SeqRange) bool {
	return func(r eventlog.SeqRange) bool { return r.First <= seq && seq <= r.Last }
}
