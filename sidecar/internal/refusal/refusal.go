// Package refusal has the one table from a cause to the contract's error: its code, which has an
// HTTP status, when to try again, and a sentence for the client.
package refusal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

const (
	// retrySoon is when to try again while the store is unavailable, the sidecar restarts or a
	// bound is reached. The duration is unknown, so this is a moderate pause.
	retrySoon = time.Second
	// retryDisk is when to try again if the disk is full, until retention or an operator makes room.
	retryDisk = 5 * time.Second
)

// Of translates the cause of a failed request, nil for nil. A cause that is not in the table stays
// as it is, and is internal.
func Of(cause error) error {
	return translate(cause, "it is not known whether this took effect; it is safe to repeat")
}

// OfRead is Of for a request that changes nothing.
func OfRead(cause error) error {
	return translate(cause, "this could not be read; try again later")
}

// OfPublish is Of for an event that was not stored.
func OfPublish(cause error) error {
	return translate(cause, "it is not known whether the event is stored; published again under the same id it is stored once")
}

// translate is the table. unknown completes the sentence if the outcome is not known.
func translate(cause error, unknown string) error {
	var (
		told      *wire.Error
		conflict  *eventlog.ConflictError
		spoolFull *spool.FullError
		disk      *eventlog.DiskFullError
		away      *spool.AwayError
		unmet     *eventlog.ConcernError
		refused   *eventlog.RefusedError
		damage    *eventlog.DamageError
		missing   *eventlog.NotFoundError
	)
	switch {
	case cause == nil:
		return nil
	case errors.As(cause, &told):
		return told
	case errors.As(cause, &conflict) && conflict.Seq == 0:
		return wire.Errorf(wire.Conflict,
			"an event with other content has the id %q: it is scheduled, or waits in the spool, and has no seq yet", conflict.ID)
	case conflict != nil:
		return &wire.Error{Code: wire.Conflict, Msg: conflict.Error(), Seq: conflict.Seq}
	case errors.As(cause, &spoolFull):
		return later(wire.Overloaded, spoolFull.RetryAfter, "too many events wait for the store: %v; try again later", spoolFull)
	case errors.As(cause, &disk):
		return diskFull(errors.Is(cause, eventlog.ErrUnavailable))
	case errors.As(cause, &away):
		return later(wire.StoreUnavailable, away.RetryAfter, "%v, so the event is not stored; try again later", away)
	case errors.As(cause, &unmet):
		return Unavailable("fewer members of the store acknowledge than durability.write_concern %s of the topic's policy, "+
			"so the event counts as not stored; published again under the same id it is stored once", unmet.Concern)
	case errors.As(cause, &refused):
		return wire.Errorf(wire.BadRequest, "%v", refused)
	case errors.Is(cause, eventlog.ErrDeleting):
		return wire.Errorf(wire.InUse, "%v", cause)
	case errors.As(cause, &missing):
		return wire.Errorf(wire.NotFound, "there is no %s", missing.What)
	case errors.Is(cause, eventlog.ErrNotFound):
		return wire.Errorf(wire.NotFound, "there is no such topic or group")
	case errors.Is(cause, writer.ErrStopped):
		return Unavailable("the sidecar is shutting down and did not store the event; try again later")
	case errors.Is(cause, eventlog.ErrTimeout):
		return Unavailable("the event log did not answer in time, so %s", unknown)
	case errors.As(cause, &damage):
		return Unavailable("%v", damage)
	case errors.Is(cause, eventlog.ErrFailed):
		return Unavailable("a write to the sidecar's --data-dir failed, and it does nothing until it is restarted; %s", unknown)
	case errors.Is(cause, eventlog.ErrUnavailable):
		return Unavailable("the event log is unavailable, so %s", unknown)
	}
	return cause
}

// diskFull is the refusal while the disk is full; maybe says that the log may have stored it
// nevertheless.
func diskFull(maybe bool) *wire.Error {
	e := later(wire.Overloaded, retryDisk, "the disk of --data-dir has less room than --disk-low-water, so nothing is stored; try again later")
	if maybe {
		e.Msg = "the sidecar's disk is full, so it is not known whether this is stored; it is safe to repeat, a publish under the same id"
	}
	e.Reason = "disk"
	return e
}

// Stopping refuses requests while the sidecar shuts down.
func Stopping() *wire.Error {
	return Unavailable("the sidecar is shutting down: try again once it is back")
}

// Overloaded refuses a request that exceeds a bound for now.
func Overloaded(format string, args ...any) *wire.Error {
	return later(wire.Overloaded, retrySoon, format, args...)
}

// Unavailable refuses a request that needs the store, for now.
func Unavailable(format string, args ...any) *wire.Error {
	return later(wire.StoreUnavailable, retrySoon, format, args...)
}

func later(code wire.Code, after time.Duration, format string, args ...any) *wire.Error {
	return &wire.Error{Code: code, RetryAfter: after, Msg: fmt.Sprintf(format, args...)}
}

// Line is the last line of an answer that failed after its first line, as JSON, and its code.
func Line(cause error) (line json.RawMessage, code wire.Code) {
	e := wire.AsError(Of(cause))
	text, err := json.Marshal(map[string]string{"error": e.Msg, "code": string(e.Code)})
	if err != nil {
		panic(err) // strings have a JSON text
	}
	return text, e.Code
}

// Shorten keeps a client's name or id from making an error too long.
func Shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:most]), nil)) + "…"
}
