package group

import (
	"context"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// DeadLetters appends to dead letter topics.
type DeadLetters interface {
	// AppendDeadLetter appends the record to its topic, which it creates if need be. It takes no
	// rate limit's tokens. done is called once: with nil when an event with this id is durable
	// there, perhaps from an earlier try with another reason.
	AppendDeadLetter(ctx context.Context, rec *eventlog.Record, done func(error))
}

// pendingNack is a nack that asks for dead letters: it is answered once they, and after them the
// progress, are durable.
type pendingNack struct {
	left int
	done func(error)
}

// whenDeadLettered arranges for done to be called once the dead letters of n, and after them the
// progress, are durable; without events it is whenDurable. It is called with mu held and releases
// it.
func (g *Group) whenDeadLettered(n *pendingNack, done func(error)) {
	if n.left == 0 {
		g.whenDurable(done)
		return
	}
	n.done = g.saver.timed(g.saver.traced(done))
	g.mu.Unlock()
}

// deadLetter makes the dead letter of an event; since is that of the progress. A group that a seek
// moved back makes new dead letters of the same events, since the earlier ones may be settled and
// gone.
func deadLetter(rec *eventlog.Record, d eventlog.Death, since int64, now time.Time) *eventlog.Record {
	d.Which = strconv.FormatUint(rec.Seq, 10)
	if since != 0 {
		d.Which += "@" + strconv.FormatInt(since, 10)
	}
	return eventlog.DeadLetter(rec, d, now)
}

// firstLetter is the id of the dead letter that an event became when it died first.
func firstLetter(rec *eventlog.Record, group string, since int64) string {
	return deadLetter(rec, eventlog.Death{Group: group}, since, time.Time{}).ID
}
