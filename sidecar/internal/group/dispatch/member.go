package dispatch

import (
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Member is one member of the group: what it asked for, and how much it may be sent.
type Member struct {
	ID        string
	Name      string // unlike those of the group's other members here
	Requested wire.SubscribeOptions
	Opts      Options
	sink      Sink
	puller    Puller // the connection's, if its client asks for events
	pacer     Pacer
	memory    *budget.Share

	Started bool
	Paused  bool
	Closed  bool
	Count   int          // in flight
	Out     []assignment // that are not sent yet
	revoked []int        // partitions that were its own before it lost them

	// The turn under way may still assign this.
	free      int
	bytesLeft int    // bytes
	skipped   bool   // gets no more in this turn, even with room
	starved   bool   // since its rate had no token left
	Asked     uint64 // the puller's request when the turn began to assign
}

// NewMember makes a member that has not started; puller and memory may be nil.
func NewMember(id string, o wire.SubscribeOptions, sink Sink, puller Puller, p Pacer, memory *budget.Share) *Member {
	return &Member{ID: id, Requested: o, sink: sink, puller: puller, pacer: p, memory: memory}
}

// What a Member asks of its connection. Package group says what the calls mean.
type (
	Sink   interface{ Room() bool }
	Puller interface {
		Wants() (n int, asked uint64)
		Blocked() string
	}
	Pacer interface {
		Take(now time.Time) (wait time.Duration, ok bool)
	}
)

// Pulls reports whether the client asks for events.
func (m *Member) Pulls() bool { return m.puller != nil }

// assignment is a delivery that has not been sent yet. It counts as long as the event is still
// under the same lease.
type assignment struct {
	Entry *Event
	lease uint64
}

// holds reports whether the delivery is still to be made.
func (a assignment) holds() bool { return a.Entry.State == InFlight && a.Entry.Lease == a.lease }

// Sends reports whether the member has been assigned an event that may be sent.
func (m *Member) Sends() bool {
	return slices.ContainsFunc(m.Out, func(a assignment) bool { return a.Entry.cleared })
}

// TurnBytes bounds the bytes that one turn hands to one member. One event always goes.
const TurnBytes = 256 << 10

// room is how many events the member could be assigned.
func (m *Member) room() int {
	if !m.Started || m.Paused || !m.sink.Room() {
		return 0
	}
	free := m.Opts.MaxInflight - m.Count
	if m.puller != nil {
		wants, _ := m.puller.Wants()
		free = min(free, wants)
	}
	return max(0, free)
}
