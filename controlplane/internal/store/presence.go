package store

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Presence is where the control planes of one store exchange their states, each
// in one document of its own. Only the display and the shares of rates depend
// on it, so a document may be lost. It is safe for concurrent use.
type Presence interface {
	// Put replaces the document of self, and counts a beat; only one handle of
	// the store puts it. A document is at most MaxCommitBytes. After an error
	// the document may be there, now or later, but never in place of a later
	// one.
	Put(ctx context.Context, self string, doc []byte) error
	// List returns all documents, also those of control planes that are gone,
	// ascending by Self.
	List(ctx context.Context) ([]PresenceDoc, error)
	// Remove removes the document of a control plane that has been gone for
	// long, if it still has this beat. Only a Put that begins later restores
	// it.
	Remove(ctx context.Context, self string, beat int64) error
}

// PresenceDoc is the document of one control plane.
type PresenceDoc struct {
	Self string
	Doc  []byte
	Beat int64 // rises with every Put
}

// AliveFor is how long a control plane counts as alive without a new beat.
const AliveFor = 5 * time.Second

// Alive tells the control planes that are alive from those that are gone. It
// uses the beats and its caller's own monotonic clock, so that it compares no
// clocks of different machines. A control plane that it sees for the first time
// counts as alive for AliveFor. The zero value is ready; it is for one
// goroutine.
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

// Gone returns the control planes that were not alive in the last call of Of,
// each with its beat, so that their documents can be removed.
func (a *Alive) Gone(now time.Time, after time.Duration) map[string]int64 {
	gone := map[string]int64{}
	for self, b := range a.seen {
		if now.Sub(b.since) >= after {
			gone[self] = b.count
		}
	}
	return gone
}

// SortPresence sorts documents in the order of List.
func SortPresence(docs []PresenceDoc) {
	slices.SortFunc(docs, func(a, b PresenceDoc) int { return strings.Compare(a.Self, b.Self) })
}
