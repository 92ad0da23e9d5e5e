package group

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// state is where an event is between being fetched and being settled.
type state uint8

const (
	waiting       state = iota // for the earlier events of its key
	doubled                    // for an event with the same id that is in flight
	ready                      // to be assigned
	delayed                    // to become ready when due
	inflight                   // assigned to a member; once sent, due is its deadline
	deadLettering              // being appended to the dead letter topic; when due it is tried again
	settled                    // acked, dead-lettered or passed over
	dropped                    // forgotten: the group was moved or has no members any more
)

// entry is a fetched event of a group. It is not settled, or is settled behind an event that is
// not.
type entry struct {
	rec    *eventlog.Record // nil once settled
	part   *partition
	seq    uint64
	next   *entry // the key's next event
	sameID *entry // another unsettled event with the same id
	behind int    // dropped settled events between this entry and the next one

	state    state
	attempts int  // deliveries counted
	unsure   bool // the last delivery may not have reached a member
	lease    uint64
	member   *Member // while in flight
	sent     bool    // while in flight: handed to the member's sink

	due   time.Time
	index int // in the timers, or -1

	letter  string           // the dead letter from which it is redriven, or ""
	ending  bool             // settled: its dead letter is being removed
	nack    *pendingNack     // while deadLettering: the nack that waits for it, or nil
	reason  string           // why the last delivery failed
	process *tracing.Process // the last delivery's span; nil: none is recorded
}

func inLogOrder(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.part.Index, b.part.Index), cmp.Compare(a.seq, b.seq))
}

// timers is a heap of entries by due time.
type timers []*entry

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}
func (t *timers) Push(x any) {
	e := x.(*entry)
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

func (t *timers) set(e *entry, due time.Time) {
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
		if e.state == inflight {
			e.due = e.due.Add(d)
		}
	}
	heap.Init(t)
}

// unset removes the entry from the timers, if it is there.
func (t *timers) unset(e *entry) {
	if e.index >= 0 {
		heap.Remove(t, e.index)
	}
}

func (t *timers) expired(now time.Time) *entry {
	if len(*t) == 0 || (*t)[0].due.After(now) {
		return nil
	}
	return heap.Pop(t).(*entry)
}
