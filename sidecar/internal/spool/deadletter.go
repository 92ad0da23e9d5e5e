package spool

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// dead is a spooled event that the log refuses: with a *eventlog.ConflictError, since its id was
// published with other content elsewhere, or with a *eventlog.RefusedError.
type dead struct {
	rec *eventlog.Record
	err error
}

// final reports whether another try to append an event would fail as well.
func final(err error) bool {
	_, conflict := errors.AsType[*eventlog.ConflictError](err)
	return conflict || refused(err)
}

func refused(err error) bool {
	_, is := errors.AsType[*eventlog.RefusedError](err)
	return is
}

// deadLetterAll makes dead letters of events that the log refuses, since their publishers got an
// OK. A dead letter that the log also refuses goes into a file beside the spool. It returns nil
// once all are durable.
func (l *Log) deadLetterAll(ctx context.Context, t *topic, list []dead) error {
	type appended struct {
		dead
		letter *eventlog.Record
		failed error
	}
	all := make(chan appended, len(list))
	waiting := 0
	for _, d := range list {
		switch {
		case !eventlog.IsDeadLetter(d.rec):
			waiting++
			letter := deadLetter(d, l.cfg.Clock.Now())
			l.drain.letters.AppendDeadLetter(ctx, letter, func(err error) { all <- appended{d, letter, err} })
		case refused(d.err):
			waiting++
			all <- appended{d, d.rec, d.err}
		}
		// Else it is a dead letter whose id is stored already: the stored one is of the same event,
		// at another attempt.
	}
	for ; waiting > 0; waiting-- {
		select {
		case s := <-all:
			switch {
			case refused(s.failed):
				if err := l.setAside(s.letter, s.failed); err != nil {
					return err
				}
			case s.failed != nil:
				return &deadLetterError{s.failed}
			}
			if s.letter != s.rec {
				l.cfg.Logger.Warn("a spooled event became a dead letter", "topic", t.name, "id", s.rec.ID, "reason", reason(s.err))
			}
			if l.cfg.DeadLettered != nil {
				l.cfg.DeadLettered(t.name)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// setAside writes a dead letter to a file, in the format of an export.
func (l *Log) setAside(letter *eventlog.Record, cause error) error {
	name := "refused-" + letter.ID + ".json"
	if err := l.cfg.Store.WriteFile(name, append(codec.AppendEventJSON(nil, &letter.Event), '\n')); err != nil {
		return &spoolError{err}
	}
	l.cfg.Logger.Error("the store refuses a dead letter, which is kept in a file", "topic", letter.Topic, "id", letter.ID,
		"file", filepath.Join(l.cfg.Folder, name), "error", cause)
	return nil
}

// deadLetterError says that a dead letter could not be stored. It does not wrap its cause, which
// says nothing about the store's health.
type deadLetterError struct{ cause error }

func (e *deadLetterError) Error() string { return "dead letter: " + e.cause.Error() }

// deadLetter is the dead letter of an event that the log refuses. The event's content distinguishes
// it from other events with its id.
func deadLetter(d dead, now time.Time) *eventlog.Record {
	content := codec.ContentHash(&d.rec.Event)
	return eventlog.DeadLetter(d.rec, eventlog.Death{Reason: reason(d.err), Which: string(content[:])}, now)
}

// reason is why the log refuses an event, cut to the length of a header.
func reason(err error) string {
	if conflict, is := errors.AsType[*eventlog.ConflictError](err); is {
		return "conflict: " + conflict.Error()
	}
	text := "refused: " + err.Error()
	return strings.ToValidUTF8(text[:min(len(text), wire.MaxReasonBytes)], "")
}
