package dispatch

import (
	"container/heap"
	"time"
)

// timers is a heap of entries by due time.
type timers []*Event

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool { return t[i].wakeAt.Before(t[j].wakeAt) }

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
	e.wakeAt = due
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
			e.wakeAt = e.wakeAt.Add(d)
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
	if len(*t) == 0 || (*t)[0].wakeAt.After(now) {
		return nil
	}
	return heap.Pop(t).(*Event)
}

// SetTimer sets the deadline of an event in flight, or when its dead letter is tried again.
func (d *Dispatcher) SetTimer(e *Event, at time.Time) { d.timers.set(e, at) }

// Postpone moves the deadlines of the events in flight.
func (d *Dispatcher) Postpone(by time.Duration) { d.timers.postpone(by) }

// NextTimer is when the first timer ends; zero: there is none.
func (d *Dispatcher) NextTimer() (at time.Time) {
	if len(d.timers) > 0 {
		at = d.timers[0].wakeAt
	}
	return at
}
