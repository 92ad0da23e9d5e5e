package dispatch

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// State is where an event is between being fetched and being settled.
type State uint8

const (
	waiting       State = iota // for the earlier events of its key
	SameID                     // for an event with the same id that is in flight
	ready                      // to be assigned
	delayed                    // to become ready when due
	InFlight                   // assigned to a member; once sent, due is its deadline
	DeadLettering              // being appended to the dead letter topic; when due it is tried again
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
	behind    int    // dropped settled events between this entry and the next one

	State    State
	Attempts int  // deliveries counted
	unsure   bool // the last delivery may not have reached a member
	Lease    uint64
	Member   *Member // while in flight
	Sent     bool    // while in flight: handed to the member's sink

	due   time.Time
	index int // in the timers, or -1

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

// timers is a heap of entries by due time.
type timers []*Event

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}
func (t *timers) Push(x any) {
	e := x.(*Event)
	e.index = len(*t)
	*t = append(*t, e)
}
func (t *timers) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	e.index = -1
	return e
}

func (t *timers) set(e *Event, due time.Time) {
	e.due = due
	if e.index >= 0 {
		heap.Fix(t, e.index)
		return
	}
	heap.Push(t, e)
}

// postpone moves the deadlines of the events in flight.
func (t *timers) postpone(d time.Duration) {
	for _, e := range *t {
		if e.State == InFlight {
			e.due = e.due.Add(d)
		}
	}
	heap.Init(t)
}

// unset removes the entry from the timers, if it is there.
func (t *timers) unset(e *Event) {
	if e.index >= 0 {
		heap.Remove(t, e.index)
	}
}

func (t *timers) expired(now time.Time) *Event {
	if len(*t) == 0 || (*t)[0].due.After(now) {
		return nil
	}
	return heap.Pop(t).(*Event)
}
