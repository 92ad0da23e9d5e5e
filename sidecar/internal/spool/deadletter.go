package spool

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// conflicted is a spooled event whose id the log holds with other content:
// somebody published it elsewhere while it waited here, or before.
type conflicted struct {
	rec *eventlog.Record
	err *eventlog.ConflictError
}

// buryAll makes dead letters of events that the log will not take, since their
// publishers were told that they are kept. It returns nil once all are durable.
func (l *Log) buryAll(ctx context.Context, t *topic, list []conflicted) error {
	settled := make(chan error, len(list))
	waiting := 0
	for _, c := range list {
		if isDeadLetter(c.rec) {
			// Its id says what it is a dead letter of: the one that is stored
			// tells the same, in other circumstances.
			continue
		}
		waiting++
		l.cfg.Bury(ctx, deadLetter(c, l.cfg.Clock.Now()), func(err error) {
			if err == nil {
				l.cfg.Logger.Warn("a spooled event became a dead letter: its id is taken",
					"topic", t.name, "id", c.rec.ID, "stored_seq", c.err.Seq)
				if l.cfg.Buried != nil {
					l.cfg.Buried(t.name)
				}
			}
			settled <- err
		})
	}
	for ; waiting > 0; waiting-- {
		select {
		case err := <-settled:
			if err != nil {
				return &buryError{err}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// buryError says that a dead letter could not be stored; what it wraps tells
// nothing about the store's health.
type buryError struct{ cause error }

func (e *buryError) Error() string { return "dead letter: " + e.cause.Error() }

// isDeadLetter recognizes what Sluice itself publishes to dead letter topics.
func isDeadLetter(r *eventlog.Record) bool {
	_, named := r.Headers.Get(wire.HeaderDeadID)
	return named && strings.HasSuffix(r.Topic, wire.DeadLetterSuffix) && strings.HasPrefix(r.ID, eventlog.DeadLetterID)
}

// deadLetter is what an event becomes whose id is taken; its content tells it
// from others that had the id.
func deadLetter(c conflicted, now time.Time) *eventlog.Record {
	content := wire.ContentHash(&c.rec.Event)
	return eventlog.DeadLetter(c.rec, eventlog.Death{Reason: "conflict: " + c.err.Error(), Which: string(content[:])}, now)
}
