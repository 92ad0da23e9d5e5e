package dispatch

import (
	"cmp"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// State is where an event is between being fetched and being settled.
type State uint8

const (
	Waiting       State = iota // for the earlier events of its key
	SameID                     // for an event with the same id that is in flight
	Ready                      // to be assigned
	Delayed                    // to become ready at wakeAt
	InFlight                   // assigned to a member; once sent, wakeAt is its deadline
	DeadLettering              // being appended to the dead letter topic; at wakeAt it is tried again
	Settled                    // acked, dead-lettered or passed over
	Dropped                    // forgotten: the group was moved or has no members any more
)

// Event is a fetched event of a group. It is not settled, or is settled behind an event that is
// not.
type Event struct {
	Record    *eventlog.Record // nil once settled
	Partition *Partition
	Seq       uint64
	next      *Event // the key's next event
	sameID    *Event // another unsettled event with the same id
	behind    int    // dropped settled events between this event and the next one

	State    State
	Attempts int  // deliveries counted
	unsure   bool // the last delivery may not have reached a member
	named    bool // the stored progress may name it
	cleared  bool // while in flight: it needs no save before it is sent, or none any more
	Lease    uint64
	Member   *Member // while in flight
	Sent     bool    // while in flight: handed to the member's sink, at SentAt
	SentAt   time.Time

	wakeAt time.Time
	index  int // in the timers, or -1

	Letter  string           // the dead letter from which it is redriven, or ""
	ending  bool             // settled: its dead letter is being removed
	reason  string           // why the last delivery failed
	Process *tracing.Process // the last delivery's span; nil: none is recorded
}

// Death says why the event becomes a dead letter.
func (e *Event) Death(group string) eventlog.Death {
	return eventlog.Death{Group: group, Reason: e.reason, Attempts: e.Attempts, Redriven: e.Letter}
}

// Assignable reports whether the event may still be assigned to a member.
func (e *Event) Assignable() bool {
	return e.State != Settled && e.State != DeadLettering && e.State != Dropped
}

func inLogOrder(a, b *Event) int {
	return cmp.Or(cmp.Compare(a.Partition.Index, b.Partition.Index), cmp.Compare(a.Seq, b.Seq))
}

// Lease names one delivery of a group by this process: the same event delivered again is under
// another lease. A lease is stale once the delivery has ended (by an ack, its deadline, a seek,
// another sidecar's takeover).
type Lease struct {
	Partition   int
	Seq, Number uint64
}

// IfSent is the event in flight if it has been sent, else nil.
func (e *Event) IfSent() *Event {
	if e != nil && e.Sent {
		return e
	}
	return nil
}
