package dispatch

import (
	"container/heap"
	"time"
)

// timers is a heap of events by the time at which they wake.
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

// Set sets the deadline of an event in flight, or when one that waits goes on.
func (t *timers) Set(e *Event, at time.Time) {
	e.wakeAt = at
	if e.index >= 0 {
		heap.Fix(t, e.index)
		return
	}
	heap.Push(t, e)
}

// Postpone moves the deadlines of the events in flight.
func (t *timers) Postpone(d time.Duration) {
	for _, e := range *t {
		if e.State == InFlight {
			e.wakeAt = e.wakeAt.Add(d)
		}
	}
	heap.Init(t)
}

// unset removes the event from the timers, if it is there.
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

// Next is when the first timer ends; zero: there is none.
func (t timers) Next() (at time.Time) {
	if len(t) > 0 {
		at = t[0].wakeAt
	}
	return at
}
