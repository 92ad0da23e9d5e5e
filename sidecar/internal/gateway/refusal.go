package gateway

import (
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// retryStore is when to try again while the store is unavailable or the sidecar restarts. The
// duration is unknown, so this is a moderate pause.
const retryStore = time.Second

// refusal translates an error of the log or of a group into the contract's error. It returns nil
// for nil. An error without a code in the contract stays as it is, and is internal.
func refusal(err error) error {
	var known *wire.Error
	var disk *eventlog.DiskFullError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, eventlog.ErrDeleting):
		return wire.Errorf(wire.InUse, "%v", err)
	case errors.As(err, &disk):
		return admit.DiskFull(err)
	case errors.Is(err, eventlog.ErrNotFound):
		return wire.Errorf(wire.NotFound, "there is no such topic or group")
	case errors.Is(err, eventlog.ErrUnavailable):
		why := "is unavailable"
		if errors.Is(err, eventlog.ErrTimeout) {
			why = "did not answer in time"
		}
		return &wire.Error{
			Code: wire.StoreUnavailable, RetryAfter: retryStore,
			Msg: "the event log " + why + ": whether this took effect is not known; it is safe to repeat",
		}
	}
	return err
}

// errStopping refuses requests while the sidecar shuts down.
func errStopping() *wire.Error {
	return &wire.Error{
		Code: wire.StoreUnavailable, RetryAfter: retryStore,
		Msg: "the sidecar is shutting down: try again once it is back",
	}
}
