package dispatch

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The values of wire.EventFate.WaitsFor.
const (
	WaitsForTurn       = "turn"        // events before it
	WaitsForMember     = "member"      // a member that may be sent it
	WaitsForKey        = "key_order"   // earlier events of its key
	WaitsForSameID     = "same_id"     // another event with its id that is in flight
	WaitsForRetry      = "backoff"     // its next delivery is due later
	WaitsForDeadLetter = "dead_letter" // its dead letter to be durable
	WaitsForOwner      = "owner"       // another sidecar has it, and only that sidecar knows more
)

// The values of wire.GroupMember.BlockedBy.
const (
	BlockedPaused      = "paused"
	BlockedNoPartition = "no_partition"
	BlockedMaxInflight = "max_inflight"
	BlockedSlowReader  = "slow_reader"
	BlockedRate        = "rate"
	BlockedKeyOrder    = "key_order"
	BlockedBackoff     = "backoff"
	BlockedCaughtUp    = "caught_up"
)

// BlockedBy says why a member gets nothing right now, or ""; more says that there are events to
// fetch.
func (d *Dispatcher) BlockedBy(m *Member, more bool) string {
	switch {
	case m.Paused, d.Paused():
		return BlockedPaused
	case !d.serves(m):
		return BlockedNoPartition
	case m.Count >= m.Opts.MaxInflight, d.room() == 0:
		return BlockedMaxInflight
	case !m.sink.Room():
		return BlockedSlowReader
	}
	switch has := d.states(m.Opts.Filter); {
	case has[ready] && (m.starved || d.round.starved):
		return BlockedRate
	case has[ready] || more:
		return ""
	case has[waiting] || has[SameID]:
		return BlockedKeyOrder
	case has[delayed]:
		return BlockedBackoff
	}
	return BlockedCaughtUp
}

// serves reports whether a partition delivers whose events the member may get.
func (d *Dispatcher) serves(m *Member) bool {
	return slices.ContainsFunc(d.Parts, func(p *Partition) bool {
		return p.Open && (!d.Divided || p.assignee == m)
	})
}

// Describe adds the state of the event with that seq, as far as it is known here, to f. It reports
// false if the event is not fetched yet, which f then says, too.
func (p *Partition) Describe(seq uint64, f *wire.EventFate, now time.Time) bool {
	i := slices.IndexFunc(p.Entries, func(e *Event) bool { return e.Seq == seq })
	again := slices.IndexFunc(p.Redrive.entries, func(e *Event) bool { return e.Seq == seq && e.State != Settled })
	switch {
	case again >= 0:
		p.Redrive.entries[again].describe(f, now)
	case i >= 0:
		p.Entries[i].describe(f, now)
	case seq < p.Next || slices.ContainsFunc(p.Skip, Holds(seq)):
		f.State = wire.FateSettled
	default:
		f.State, f.WaitsFor = wire.FateWaiting, WaitsForTurn
		for _, r := range p.Carried {
			if Holds(seq)(r.SeqRange) {
				f.Attempts = r.Attempts
			}
		}
		return false
	}
	return true
}

// waitsFor has the WaitsFor of each state of an event.
var waitsFor = map[State]string{
	waiting: WaitsForKey, SameID: WaitsForSameID, ready: WaitsForMember, delayed: WaitsForRetry, DeadLettering: WaitsForDeadLetter,
}

// describe adds the entry's state.
func (e *Event) describe(f *wire.EventFate, now time.Time) {
	if e.State == Settled {
		f.State = wire.FateSettled
		return
	}
	f.State, f.Attempts, f.WaitsFor = wire.FateWaiting, e.Attempts, waitsFor[e.State]
	if e.State == InFlight {
		f.State, f.Member = wire.FateInflight, e.Member.Id
	}
	if e.State == delayed || e.Sent {
		f.DueMS = new(max(0, e.due.Sub(now).Milliseconds()))
	}
}

// states reports in which states there are fetched events that the filter lets pass.
func (d *Dispatcher) states(f *wire.Filter) (has [Dropped + 1]bool) {
	for _, p := range d.Parts {
		if !p.Open {
			continue
		}
		for e := range p.All() {
			if e.State != Settled && f.Matches(&e.Record.Event) {
				has[e.State] = true
			}
		}
	}
	return has
}
