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

// deadLetter is what an event becomes that the group is not to get any more.
func deadLetter(e *entry, group string, now time.Time) *eventlog.Record {
	return eventlog.DeadLetter(e.rec, eventlog.Death{
		Group: group, Reason: e.reason, Attempts: e.attempts, Which: strconv.FormatUint(e.rec.Seq, 10),
	}, now)
}
