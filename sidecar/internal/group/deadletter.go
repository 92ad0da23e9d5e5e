package group

import (
	"context"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// DeadLetters appends to dead letter topics.
type DeadLetters interface {
	// Bury appends the record to its topic, which it creates if need be.
	// It takes no rate limit's tokens. done is called once: with nil when an
	// event with this id is durable there, be it from an earlier try with
	// another reason.
	Bury(ctx context.Context, rec *eventlog.Record, done func(error))
}

// burial is a nack that asks for dead letters: it is answered once all of them
// are durable, and the progress that says so.
type burial struct {
	left int
	done func(error)
}

// whenBuried arranges for done to be called as b says; nil, or one without
// events, is whenDurable. It is called with mu held and releases it.
func (g *Group) whenBuried(b *burial, done func(error)) {
	if b == nil || b.left == 0 {
		g.whenDurable(done)
		return
	}
	b.done = g.timed(g.traced(done))
	g.mu.Unlock()
}

// laid takes an event off the burial that waits for it, if one does; err says
// that nobody here will bury it.
func (g *Group) laid(e *entry, err error) {
	b := e.burial
	if b == nil {
		return
	}
	e.burial = nil
	if b.left--; err != nil {
		b.done = func(done func(error)) func(error) { return func(error) { done(err) } }(b.done)
	}
	if b.left == 0 {
		g.waiters = append(g.waiters, b.done)
	}
}

// deadLetter is what an event becomes that the group is not to get any more;
// since is that of the progress. A group that was set back buries anew what it
// had buried before: the dead letter of that time may be settled and gone.
func deadLetter(e *entry, group string, since int64, now time.Time) *eventlog.Record {
	which := strconv.FormatUint(e.rec.Seq, 10)
	if since != 0 {
		which += "@" + strconv.FormatInt(since, 10)
	}
	return eventlog.DeadLetter(e.rec, eventlog.Death{
		Group: group, Reason: e.reason, Attempts: e.attempts, Which: which, Redriven: e.letter,
	}, now)
}
