package store

import "time"

// PresenceDoc is the document of one control plane, in which it tells the others of its store its
// state. Only the display and the shares of rates depend on it, so a document may be lost.
type PresenceDoc struct {
	Self string
	Doc  []byte
	Beat int64 // rises with every Put
}

// AliveFor is how long a control plane counts as alive without a new beat.
const AliveFor = 5 * time.Second

// Alive tells the control planes that are alive from those that are gone. It uses the beats and its
// caller's own monotonic clock, so that it compares no clocks of different machines. A control
// plane that it sees for the first time counts as alive for AliveFor. The zero value is ready; it
// is for one goroutine.
type Alive struct{ seen map[string]beat }

// beat is the last beat of a control plane, and when it was first seen.
type beat struct {
	count int64
	since time.Time
}

// Of returns the documents whose beat has changed within AliveFor.
func (a *Alive) Of(docs []PresenceDoc, now time.Time) []PresenceDoc {
	last := a.seen
	a.seen = make(map[string]beat, len(docs))
	var alive []PresenceDoc
	for _, d := range docs {
		b, known := last[d.Self]
		if !known || b.count != d.Beat {
			b = beat{d.Beat, now}
		}
		a.seen[d.Self] = b
		if now.Sub(b.since) < AliveFor {
			alive = append(alive, d)
		}
	}
	return alive
}

// Gone returns the control planes that were not alive in the last call of Of, each with its beat,
// so that their documents can be removed.
func (a *Alive) Gone(now time.Time, after time.Duration) map[string]int64 {
	gone := map[string]int64{}
	for self, b := range a.seen {
		if now.Sub(b.since) >= after {
			gone[self] = b.count
		}
	}
	return gone
}
