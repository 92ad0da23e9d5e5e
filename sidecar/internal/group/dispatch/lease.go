package dispatch

import (
	"cmp"
	"slices"
)

// Lease names one delivery of a group by this process: the same event delivered again is under
// another lease. A lease is stale once the delivery has ended (by an ack, its deadline, a seek,
// another sidecar's takeover).
type Lease struct {
	Partition   int
	Seq, Number uint64
}

// Leased finds the event in flight under a lease, or nil.
func (d *Dispatcher) Leased(l Lease) *Event {
	if l.Partition < 0 || l.Partition >= len(d.Parts) {
		return nil
	}
	p := d.Parts[l.Partition]
	for _, e := range p.Redrive.entries {
		if e.State == InFlight && e.Lease == l.Number {
			return e.IfSent()
		}
	}
	i, found := slices.BinarySearchFunc(p.events, l.Seq, func(e *Event, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	if !found || p.events[i].State != InFlight || p.events[i].Lease != l.Number {
		return nil
	}
	return p.events[i].IfSent()
}

// IfSent is the event in flight if it has been sent, else nil.
func (e *Event) IfSent() *Event {
	if e != nil && e.Sent {
		return e
	}
	return nil
}
