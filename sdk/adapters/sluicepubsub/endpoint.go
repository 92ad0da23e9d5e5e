package sluicepubsub

import (
	"context"
	"errors"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"gocloud.dev/gcerrors"
)

// endpoint is what topics and subscriptions have in common.
type endpoint struct {
	client *sluice.Client
	topic  string
}

func (e endpoint) As(i any) bool { return asPointer(e.client)(i) }

func (endpoint) Close() error { return nil }

func (endpoint) ErrorAs(err error, i any) bool { return errors.As(err, i) }

func (endpoint) ErrorCode(err error) gcerrors.ErrorCode {
	if errors.Is(err, context.Canceled) {
		return gcerrors.Canceled
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return gcerrors.DeadlineExceeded
	}
	if refusal, ok := errors.AsType[*sluice.Error](err); ok {
		if code, known := codes[refusal.Code]; known {
			return code
		}
	}
	return gcerrors.Unknown
}

var codes = map[wire.Code]gcerrors.ErrorCode{
	wire.BadJSON:          gcerrors.InvalidArgument,
	wire.BadRequest:       gcerrors.InvalidArgument,
	wire.PayloadTooLarge:  gcerrors.InvalidArgument,
	wire.SchemaViolation:  gcerrors.InvalidArgument,
	wire.Unauthorized:     gcerrors.PermissionDenied,
	wire.Forbidden:        gcerrors.PermissionDenied,
	wire.NotFound:         gcerrors.NotFound,
	wire.Conflict:         gcerrors.AlreadyExists,
	wire.StaleLease:       gcerrors.FailedPrecondition,
	wire.TopicPaused:      gcerrors.FailedPrecondition,
	wire.OutOfRange:       gcerrors.FailedPrecondition,
	wire.RateLimited:      gcerrors.ResourceExhausted,
	wire.Overloaded:       gcerrors.ResourceExhausted,
	wire.StoreUnavailable: gcerrors.Internal,
	wire.Internal:         gcerrors.Internal,
}

// asPointer returns the As function that gives value out.
func asPointer[T any](value *T) func(any) bool {
	return func(i any) bool {
		into, ok := i.(**T)
		if ok {
			*into = value
		}
		return ok
	}
}
