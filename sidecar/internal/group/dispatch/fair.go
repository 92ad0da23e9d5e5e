package dispatch

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
)

// fairQueue has the ready events of a group whose policy says delivery.fairness, by tenant. It is
// start-time fair queueing (Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996): each event
// has a start tag, which is the virtual time or the finish tag of its tenant's event before it,
// whichever is later, and a finish tag, which is 1 ÷ weight behind that. The event with the lowest
// start tag is delivered next, and its start tag is the virtual time. That needs no rate of
// service, which consumers do not have.
type fairQueue struct {
	policy  policy.Fairness
	weights map[string]float64
	flows   map[string]*flow
	order   flowHeap // the flows that have events to be tried in this turn
	touched []*flow  // the flows with events that were tried in this turn
	virtual float64  // time
	pushed  uint64   // flows that have become busy so far
	events  int
}

// flow is one tenant.
type flow struct {
	weight float64
	start  float64 // of its next event
	rank   uint64  // of those with the same start the lowest is next
	queue  []*Event
	tried  int // of the queue, in this turn
	kept   int // of those tried, to stay
	index  int // in the order, or -1
}

// maxIdleTenants is how many tenants without events the queue remembers with their shares.
const maxIdleTenants = 10_000

func (q *fairQueue) push(e *Event) {
	name := q.policy.By.Tenant(e.Record.Key, e.Record.Headers)
	f := q.flows[name]
	if f == nil {
		if len(q.flows) >= len(q.order)+len(q.touched)+maxIdleTenants {
			q.forgetIdle()
		}
		name = strings.Clone(name) // it may be a part of the whole event
		f = &flow{weight: cmp.Or(q.weights[name], 1), index: -1}
		q.flows[name] = f
	}
	if len(f.queue) == 0 {
		f.start = max(f.start, q.virtual)
	}
	f.queue = append(f.queue, e)
	q.events++
	q.offer(f)
}

// offer makes a flow take part in this turn.
func (q *fairQueue) offer(f *flow) {
	if f.index < 0 {
		q.pushed++
		f.rank = q.pushed
		heap.Push(&q.order, f)
	}
}

// next is the event to be tried next, or nil.
func (q *fairQueue) next() (*flow, *Event) {
	for len(q.order) > 0 {
		f := q.order[0]
		if f.tried < len(f.queue) {
			if f.tried == 0 {
				q.touched = append(q.touched, f)
			}
			f.tried++
			return f, f.queue[f.tried-1]
		}
		heap.Pop(&q.order)
	}
	return nil, nil
}

// delivered charges a flow for an event.
func (q *fairQueue) delivered(f *flow) {
	q.virtual = max(q.virtual, f.start)
	f.start = q.virtual + 1/f.weight
	heap.Fix(&q.order, f.index)
}

// endTurn removes the events that are gone, and makes all flows take part again.
func (q *fairQueue) endTurn() {
	for _, f := range q.touched {
		q.events -= f.tried - f.kept
		if f.kept == 0 {
			clear(f.queue[:f.tried])
			f.queue = f.queue[f.tried:]
		} else {
			f.queue = slices.Delete(f.queue, f.kept, f.tried)
		}
		f.tried, f.kept = 0, 0
		switch {
		case len(f.queue) > 0:
			q.offer(f)
		case f.index >= 0:
			heap.Remove(&q.order, f.index)
		}
	}
	clear(q.touched)
	q.touched = q.touched[:0]
	if q.events == 0 { // no tenant waits for another: all are equal again
		clear(q.flows)
	}
}

// forgetIdle forgets the flows without events that have had no more than others, and all flows
// without events if that is not enough.
func (q *fairQueue) forgetIdle() {
	forget := func(which func(*flow) bool) {
		for name, f := range q.flows {
			if len(f.queue) == 0 && which(f) {
				delete(q.flows, name)
			}
		}
	}
	forget(func(f *flow) bool { return f.start <= q.virtual })
	if len(q.flows) >= len(q.order)+len(q.touched)+maxIdleTenants/2 {
		forget(func(*flow) bool { return true })
	}
}

func (q *fairQueue) drop(p *Partition) {
	for _, f := range q.flows {
		before := len(f.queue)
		f.queue = slices.DeleteFunc(f.queue, func(e *Event) bool { return e.Partition == p })
		q.events -= before - len(f.queue)
		if len(f.queue) == 0 && f.index >= 0 {
			heap.Remove(&q.order, f.index)
		}
	}
}

// all are the events that are left, in the order of the log.
func (q *fairQueue) all() []*Event {
	es := make([]*Event, 0, q.events)
	for _, f := range q.flows {
		es = append(es, f.queue...)
	}
	slices.SortFunc(es, inLogOrder)
	return es
}

// flowHeap is a heap of flows by start.
type flowHeap []*flow

func (h flowHeap) Len() int { return len(h) }
func (h flowHeap) Less(i, j int) bool {
	return h[i].start < h[j].start || h[i].start == h[j].start && h[i].rank < h[j].rank
}
func (h flowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *flowHeap) Push(x any) {
	f := x.(*flow)
	f.index = len(*h)
	*h = append(*h, f)
}
func (h *flowHeap) Pop() any {
	old := *h
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	f.index = -1
	return f
}
