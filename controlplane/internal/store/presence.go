package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Presence is where the control planes of one store tell each other what they
// know, each in one document of its own. Nothing depends on it but what people
// and shares of a rate go by, so a document may be lost. It is safe for
// concurrent use.
type Presence interface {
	// Put replaces the document of self, and counts a beat. A document is at
	// most MaxCommitBytes.
	Put(ctx context.Context, self string, doc []byte) error
	// List returns all documents, also those of control planes that are gone,
	// ascending by Self.
	List(ctx context.Context) ([]PresenceDoc, error)
	// Remove removes the document of a control plane, if there is one: its own
	// when it stops, or that of one which has been gone for long.
	Remove(ctx context.Context, self string) error
}

// PresenceDoc is the document of one control plane.
type PresenceDoc struct {
	Self string
	Doc  []byte
	Beat int64 // rises with every Put
}

// AliveFor is for how long a control plane counts as alive whose beat does not
// move.
const AliveFor = 5 * time.Second

// Alive tells the control planes that are alive from those that are gone. It
// goes by the beats and its caller's own monotonic clock, so that no clock is
// compared with another machine's. One that it sees for the first time counts
// as alive for a while. The zero value is ready; it is for one goroutine.
type Alive struct{ seen map[string]beat }

// beat is the last one of a control plane, and when it was seen first.
type beat struct {
	count int64
	since time.Time
}

// Of returns those of the documents whose beat has moved within AliveFor.
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

// Gone names those whose beat had not moved for a time when Of was called last,
// so that their documents can be removed.
func (a *Alive) Gone(now time.Time, after time.Duration) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.seen)), func(self string) bool {
		return now.Sub(a.seen[self].since) < after
	})
}

// SortPresence puts documents in the order of List.
func SortPresence(docs []PresenceDoc) {
	slices.SortFunc(docs, func(a, b PresenceDoc) int { return strings.Compare(a.Self, b.Self) })
}
