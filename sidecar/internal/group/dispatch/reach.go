package dispatch

import (
	"cmp"
	"math"
	"slices"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// reach says which first deliveries of a partition need no save before they are sent. Each save of
// the owner reaches some seqs ahead. Once it is acknowledged, an event up to there may be sent if the
// stored progress names it nowhere, and if no event of its key is settled here and not in the store.
//
// Why a kill breaks no promise: the next owner counts an attempt for each unsettled event within the
// reach that the stored progress does not name, so a first delivery counts like one that was saved. It
// counts events that were never sent, too. But then they are named, so that happens once to an event
// at most, and they are unsure, so none becomes a dead letter by that alone. The key's condition
// keeps the order: if an ack is lost with its owner, no later event of the key was sent.
//
// The reach is of one epoch and one life. A new owner, a new life and a seek begin without one, and a
// released partition has none.
type reach struct {
	saved, saving uint64 // up to which seq, by the last acknowledged save and by the one under way
	// settled and settling are keys of events that were settled since the last save began, and
	// before that. Lookahead bounds them.
	settled, settling map[string]bool
}

func (r *reach) settle(key string) {
	if key == "" || r.saved|r.saving == 0 { // the save that reaches anything has it
		return
	}
	if r.settled == nil {
		r.settled = map[string]bool{}
	}
	r.settled[key] = true
}

// goesUnsaved reports whether the event may be sent before a save that has its attempt.
func (e *Event) goesUnsaved() bool {
	r := &e.Partition.reach
	return !e.named && e.Seq <= r.saved && !r.settled[e.Record.Key] && !r.settling[e.Record.Key]
}

// Reach begins a save of the partition, and returns its reach: what members have room for beyond what
// they have, and no less than before. 0: no event is to go unsaved.
func (p *Partition) Reach(room int) uint64 {
	p.reach.settling, p.reach.settled = p.reach.settled, nil
	if p.reach.saving = p.reach.saved; room > 0 {
		p.reach.saving = max(p.reach.saved, p.ahead(room))
	}
	return p.reach.saving
}

// Reaches reports whether a save has reached anything, or may.
func (p *Partition) Reaches() bool { return p.reach.saved|p.reach.saving > 0 }

// ahead is the seq of the last event that there is room for.
func (p *Partition) ahead(room int) uint64 {
	for _, e := range p.events {
		if e.Assignable() && e.State != InFlight {
			if room--; room == 0 {
				return e.Seq
			}
		}
	}
	return p.Next - 1 + uint64(room)
}

// Reached ends the save that Reach began: the store has acknowledged it.
func (p *Partition) Reached() {
	p.reach.saved, p.reach.saving, p.reach.settling = p.reach.saving, 0, nil
}

// Withdraw ends the reach, also that of a save under way. A save that failed may have been refused.
func (p *Partition) Withdraw() { p.reach = reach{} }

// Room is how many events more the members could have in flight, whether or not they read now.
func (d *Dispatcher) Room() (room int) {
	for _, m := range d.members {
		if m.Started && !m.Paused {
			room = min(room+max(0, m.Opts.MaxInflight-m.Count), math.MaxInt32)
		}
	}
	return min(room, d.room())
}

// countUnnamed counts an attempt of each unsettled seq up to last that the progress does not name.
func countUnnamed(pr *eventlog.Progress, last uint64) {
	named := union(pr.Settled, pr.Out)
	for _, r := range pr.Attempts {
		named = append(named, r.SeqRange)
	}
	for _, d := range pr.Delays {
		named = append(named, eventlog.SeqRange{First: d.Seq, Last: d.Seq})
	}
	at := pr.Cursor
	var counted []eventlog.SeqRange
	for _, r := range append(union(named, pr.Unsure), eventlog.SeqRange{First: last + 1, Last: last + 1}) {
		if end := min(r.First, last+1); at < end {
			counted = append(counted, eventlog.SeqRange{First: at, Last: end - 1})
		}
		at = max(at, r.Last+1)
	}
	pr.Attempts = slices.Clone(pr.Attempts)
	for _, r := range counted {
		pr.Attempts = append(pr.Attempts, eventlog.AttemptRange{SeqRange: r, Attempts: 1})
	}
	slices.SortFunc(pr.Attempts, func(a, b eventlog.AttemptRange) int { return cmp.Compare(a.First, b.First) })
	pr.Unsure = union(pr.Unsure, counted)
}
