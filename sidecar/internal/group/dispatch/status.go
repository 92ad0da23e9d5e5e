package dispatch

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The values of wire.EventFate.WaitsFor.
const (
	WaitsForTurn       = "turn"        // events before it
	WaitsForMember     = "member"      // a member that may be sent it
	WaitsForKey        = "key_order"   // earlier events of its key
	WaitsForSameID     = "same_id"     // another event with its id that is in flight
	WaitsForRetry      = "backoff"     // its next delivery is later
	WaitsForDeadLetter = "dead_letter" // its dead letter to be durable
	WaitsForOwner      = "owner"       // another sidecar has it, and only that sidecar knows more
)

// The values of wire.GroupMember.BlockedBy.
const (
	BlockedPaused      = "paused"
	BlockedNoPartition = "no_partition"
	BlockedMaxInflight = "max_inflight"
	BlockedSlowReader  = "slow_reader"
	BlockedNotPulling  = "not_pulling"
	BlockedRate        = "rate"
	BlockedKeyOrder    = "key_order"
	BlockedBackoff     = "backoff"
	BlockedCaughtUp    = "caught_up"
)

// Statuses says of each member for how long it has had its oldest event in flight, in milliseconds,
// and why it gets nothing right now, or nil. unread says that there are events to fetch.
func (d *Dispatcher) Statuses(unread bool, now time.Time) func(m *Member) (oldestMS int64, blockedBy *string) {
	oldest := map[*Member]time.Time{}
	for _, e := range d.Timers {
		if at, is := oldest[e.Member]; e.Sent && (!is || e.SentAt.Before(at)) {
			oldest[e.Member] = e.SentAt
		}
	}
	var all *states // of the events without a filter, which most members have in common
	return func(m *Member) (oldestMS int64, blockedBy *string) {
		if at, is := oldest[m]; is {
			oldestMS = now.Sub(at).Milliseconds()
		}
		of := all
		if m.Opts.Filter != nil || all == nil {
			of = new(d.states(m.Opts.Filter))
		}
		if m.Opts.Filter == nil {
			all = of
		}
		if why := d.blockedBy(m, of, unread); why != "" {
			blockedBy = &why
		}
		return oldestMS, blockedBy
	}
}

// blockedBy says why a member gets nothing right now, or "". has are the states of the events that
// its filter lets pass.
func (d *Dispatcher) blockedBy(m *Member, has *states, unread bool) string {
	switch {
	case m.Paused, d.Paused():
		return BlockedPaused
	case !d.serves(m):
		return BlockedNoPartition
	case m.Count >= m.Opts.MaxInflight, d.room() == 0:
		return BlockedMaxInflight
	case !unread && *has == states{}:
		return BlockedCaughtUp // however fast it reads
	case !m.sink.Room() && m.puller != nil:
		return m.puller.Blocked()
	case !m.sink.Room():
		return BlockedSlowReader
	case has[Ready] && (m.starved || d.Round.starved):
		return BlockedRate
	case has[Ready] || unread:
		return ""
	case has[Waiting] || has[SameID]:
		return BlockedKeyOrder
	case has[Delayed]:
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
	i := slices.IndexFunc(p.events, func(e *Event) bool { return e.Seq == seq })
	again := slices.IndexFunc(p.Redrive.events, func(e *Event) bool { return e.Seq == seq && e.State != Settled })
	switch {
	case again >= 0:
		p.Redrive.events[again].describe(f, now)
	case i >= 0:
		p.events[i].describe(f, now)
	case seq < p.Next || slices.ContainsFunc(p.skip, Holds(seq)):
		f.State = wire.FateSettled
	default:
		f.State, f.WaitsFor = wire.FateWaiting, WaitsForTurn
		for _, r := range p.Attempts {
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
	Waiting: WaitsForKey, SameID: WaitsForSameID, Ready: WaitsForMember, Delayed: WaitsForRetry, DeadLettering: WaitsForDeadLetter,
}

// describe adds the event's state.
func (e *Event) describe(f *wire.EventFate, now time.Time) {
	if e.State == Settled {
		f.State = wire.FateSettled
		return
	}
	f.State, f.Attempts, f.WaitsFor = wire.FateWaiting, e.Attempts, waitsFor[e.State]
	if e.State == InFlight {
		f.State, f.Member = wire.FateInflight, e.Member.ID
	}
	if e.State == Delayed || e.Sent {
		f.DueMS = new(max(0, e.wakeAt.Sub(now).Milliseconds()))
	}
}

// states has the states that there are among fetched events.
type states [Dropped + 1]bool

// states reports in which states there are fetched events that the filter lets pass.
func (d *Dispatcher) states(f *wire.Filter) (has states) {
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

// Demand is how many events members have room for in addition to the ready ones. If the group looks
// ahead, it is the bound on that.
func (d *Dispatcher) Demand() int {
	switch {
	case d.Bytes >= d.cfg.MaxBytes:
		return 0
	case d.LooksAhead():
		return d.cfg.Lookahead
	}
	room := 0
	for _, m := range d.members {
		room += m.room()
	}
	waiting := len(d.ready) - d.Round.blocked
	if d.fair != nil {
		waiting += d.fair.events
	}
	return min(room, d.room()) - waiting
}

// Passes reports whether the filter of a member lets the event pass.
func (d *Dispatcher) Passes(rec *eventlog.Record) bool {
	return slices.ContainsFunc(d.members, func(m *Member) bool { return m.Opts.Filter.Matches(&rec.Event) })
}

// LooksAhead reports whether the group fetches more events than members have room for. With
// fairness it does, to find one tenant's events behind any number of another's. It uses at most
// half of the memory.
func (d *Dispatcher) LooksAhead() bool {
	return d.fair != nil && len(d.members) > 0 && !d.limits.Paused && !d.memory.Scarce()
}

// Dirty reports whether progress of a partition differs from what was last saved.
func (d *Dispatcher) Dirty() bool {
	return slices.ContainsFunc(d.Parts, func(p *Partition) bool { return p.Dirty })
}

// Urgent reports whether assignments or dead letters wait for the next save, and not only acks.
func (d *Dispatcher) Urgent() bool {
	return len(d.DeadLetters) > 0 || slices.ContainsFunc(d.members, func(m *Member) bool {
		return slices.ContainsFunc(m.Out, func(a assignment) bool { return !a.Entry.cleared })
	})
}

// ExactlyOnce reports whether a member asked for exactly once.
func (d *Dispatcher) ExactlyOnce() bool {
	return slices.ContainsFunc(d.members, func(m *Member) bool { return m.Opts.ExactlyOnce })
}
