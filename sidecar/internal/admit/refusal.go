package admit

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// retryStore is when to try again while the store is unavailable. The duration is unknown, so this
// is a moderate pause.
const retryStore = time.Second

// refusal returns the contract's error for an event that was not stored, and logs the cause if that
// error hides it.
func (p *Publisher) refusal(topic string, err error) *wire.Error {
	var conflict *eventlog.ConflictError
	var spoolFull *spool.FullError
	var away *spool.AwayError
	var disk *eventlog.DiskFullError
	var unmet *eventlog.ConcernError
	var refused *eventlog.RefusedError
	switch {
	case errors.As(err, &conflict) && conflict.Seq == 0:
		return wire.Errorf(wire.Conflict, "id %q waits in the spool with other content, or until it is due; it has no seq yet", conflict.ID)
	case conflict != nil:
		return &wire.Error{Code: wire.Conflict, Msg: conflict.Error(), Seq: conflict.Seq}
	case errors.As(err, &spoolFull):
		return &wire.Error{
			Code: wire.Overloaded, RetryAfter: spoolFull.RetryAfter,
			Msg: "too many events wait for the store: " + spoolFull.Error() + "; try again later",
		}
	case errors.As(err, &disk):
		return DiskFull(err)
	case errors.As(err, &away):
		return &wire.Error{
			Code: wire.StoreUnavailable, RetryAfter: away.RetryAfter,
			Msg: away.Error() + ", so the event is not stored; try again later",
		}
	case errors.As(err, &unmet):
		return unavailable("the store does not meet the topic's write concern " + unmet.Concern + ", so the event counts as not stored; " +
			"published again under the same id it is stored once")
	case errors.As(err, &refused):
		return wire.Errorf(wire.BadRequest, "%v", refused)
	case errors.Is(err, eventlog.ErrDeleting):
		return wire.Errorf(wire.InUse, "%v", err)
	case errors.Is(err, writer.ErrStopped):
		return unavailable("the sidecar is shutting down and did not store the event; try again later")
	case errors.Is(err, eventlog.ErrUnavailable):
		return unavailable("the event log is unavailable, so it is not known whether the event is stored; " +
			"published again under the same id it is stored once")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable("the request ended before the event log had created the topic; the event is not stored")
	}
	e := wire.AsError(err)
	if e.Code == wire.Internal {
		p.cfg.Logger.Error("publish failed", "topic", topic, "error", err)
	}
	return e
}

// retryDisk is when to try again if the disk is full, until retention or an operator makes room.
const retryDisk = 5 * time.Second

// DiskFull refuses a publish or a change because the disk is full, as the log's error says. If that
// error wraps eventlog.ErrUnavailable, the log may have stored it nevertheless.
func DiskFull(err error) *wire.Error {
	e := &wire.Error{
		Code: wire.Overloaded, Reason: "disk", RetryAfter: retryDisk,
		Msg: "the sidecar's disk has too little room, so nothing is stored; try again later",
	}
	if errors.Is(err, eventlog.ErrUnavailable) {
		e.Msg = "the sidecar's disk is full, so it is not known whether this is stored; it is safe to repeat, a publish under the same id"
	}
	return e
}

func unavailable(msg string) *wire.Error {
	return &wire.Error{Code: wire.StoreUnavailable, RetryAfter: retryStore, Msg: msg}
}

// refuseAll counts the items of a call that is refused completely.
func (p *Publisher) refuseAll(ctx context.Context, a *admission, items []wire.PublishItem, err *wire.Error) *wire.Error {
	a.trace(ctx, items)
	for i := range items {
		a.span(i).Refused(items[i].Event.ID, err)
		p.Refused(items[i].Event.Topic, err.Code, 1)
	}
	return err
}

// Refused counts n events that were refused; a transport calls it for events that it refuses
// itself.
func (p *Publisher) Refused(topic string, code wire.Code, n int) {
	if codec.CheckTopic(topic) != nil {
		topic = "_invalid" // else a client could invent labels
	}
	p.cfg.Metrics.Topic(topic).Rejected(code, n)
}
