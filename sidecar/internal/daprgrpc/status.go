package daprgrpc

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// domain is that of the errors' reasons.
const domain = "sluice"

// statusCodes are the statuses of errors; others are the caller's mistakes.
var statusCodes = map[wire.Code]codes.Code{
	wire.Unauthorized:      codes.Unauthenticated,
	wire.Forbidden:         codes.PermissionDenied,
	wire.NotFound:          codes.NotFound,
	wire.Conflict:          codes.AlreadyExists,
	wire.AlreadySubscribed: codes.AlreadyExists,
	wire.RateLimited:       codes.ResourceExhausted,
	wire.Overloaded:        codes.Unavailable,
	wire.StoreUnavailable:  codes.Unavailable,
	wire.TopicPaused:       codes.Unavailable,
	wire.Internal:          codes.Internal,
}

// statusOf is an error as a status, with its code and when to try again as details.
func statusOf(e *wire.Error) error {
	code, ok := statusCodes[e.Code]
	if !ok {
		code = codes.InvalidArgument
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: strings.ToUpper(string(e.Code)), Domain: domain}}
	if _, ok := e.RetryAfterMS(); ok {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	s, err := status.New(code, e.Msg).WithDetails(details...)
	if err != nil {
		return status.Error(code, e.Msg) // details of known types are always taken
	}
	return s.Err()
}
