package sluice

import "github.com/sluice-bus/sluice/sdk/wire"

// The codes of refusals, for errors.Is. The error itself is an [*Error], which also says what is
// wrong and when to try again.
var (
	ErrBadRequest      error = &Error{Code: wire.BadRequest, Msg: "a field is missing or invalid"}
	ErrConflict        error = &Error{Code: wire.Conflict, Msg: "the topic holds another event with this id"}
	ErrForbidden       error = &Error{Code: wire.Forbidden, Msg: "the token may not do this"}
	ErrNotFound        error = &Error{Code: wire.NotFound, Msg: "there is no such topic, group or event"}
	ErrOutOfRange      error = &Error{Code: wire.OutOfRange, Msg: "retention has passed the positions"}
	ErrPayloadTooLarge error = &Error{Code: wire.PayloadTooLarge, Msg: "the event is over a limit"}
	ErrSchemaViolation error = &Error{Code: wire.SchemaViolation, Msg: "the topic's schema refuses the payload"}
	ErrTopicPaused     error = &Error{Code: wire.TopicPaused, Msg: "the policy pauses the topic"}
	ErrUnauthorized    error = &Error{Code: wire.Unauthorized, Msg: "there is no valid token"}

	// The client itself retries after these. A caller gets them only if its context ended
	// meanwhile, and from calls by HTTP.
	ErrOverloaded       error = &Error{Code: wire.Overloaded, Msg: "a queue of the sidecar is full"}
	ErrRateLimited      error = &Error{Code: wire.RateLimited, Msg: "a rate limit is reached"}
	ErrStoreUnavailable error = &Error{Code: wire.StoreUnavailable, Msg: "the store is down"}
)
