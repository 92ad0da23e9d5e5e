package wire

import (
	"errors"
	"fmt"
	"time"
)

// Code is a stable name of an error: the same on HTTP, on WebSocket, in metrics and in the SDK.
type Code string

// The codes of the contract's section 3.
const (
	BadJSON            Code = "bad_json"
	BadRequest         Code = "bad_request"
	Unauthorized       Code = "unauthorized"
	Forbidden          Code = "forbidden"
	NotFound           Code = "not_found"
	AlreadySubscribed  Code = "already_subscribed"
	NotSubscribed      Code = "not_subscribed"
	UnknownID          Code = "unknown_id"
	StaleLease         Code = "stale_lease"
	Conflict           Code = "conflict"
	PreconditionFailed Code = "precondition_failed"
	OutOfRange         Code = "out_of_range"
	InUse              Code = "in_use"
	PayloadTooLarge    Code = "payload_too_large"
	InvalidPolicy      Code = "invalid_policy"
	PartialFleet       Code = "partial_fleet"
	SchemaViolation    Code = "schema_violation"
	RateLimited        Code = "rate_limited"
	Overloaded         Code = "overloaded"
	StoreUnavailable   Code = "store_unavailable"
	TopicPaused        Code = "topic_paused"
	UnknownOp          Code = "unknown_op"
	Internal           Code = "internal"
)

// HTTPStatus is the status that goes with the code; an unknown code is 500.
func (c Code) HTTPStatus() int {
	if s, ok := statusOf[c]; ok {
		return s
	}
	return statusOf[Internal]
}

// CodeOfStatus returns the code for the status of an answer that carries no code. If several codes
// have this status, it returns the one that fits any server. 502, which a proxy sends when it finds
// no sidecar, is store_unavailable.
func CodeOfStatus(status int) Code {
	switch {
	case status == 503:
		return Overloaded
	case status == 409:
		return Conflict
	case status == 422:
		return SchemaViolation
	case status >= 400 && status < 500:
		for _, c := range []Code{Unauthorized, Forbidden, NotFound, PreconditionFailed, PayloadTooLarge, OutOfRange, RateLimited} {
			if statusOf[c] == status {
				return c
			}
		}
		return BadRequest
	case status == 502:
		return StoreUnavailable
	}
	return Internal
}

// Error is a refusal: a code for programs and a sentence for people that says what was wrong and
// what is allowed. It never carries internal detail.
type Error struct {
	Code Code
	Msg  string
	// RetryAfter is how long to wait before the same request can succeed; it is sent with
	// rate_limited, overloaded and store_unavailable alone.
	RetryAfter time.Duration
	// Scope says whose bucket was empty: connection, topic, fleet or tenant.
	Scope string
	// Reason is the cause of an overloaded: "disk", or "" for any other cause.
	Reason string
	// Seq is the stored event's seq, with conflict.
	Seq uint64
	// Fields are all bad fields, with invalid_policy.
	Fields []FieldError
	// Missing names the part of the fleet that could not be asked.
	Missing []string
	// IDs are the events that were lost before they were settled, with a stale_lease of an ACK or NACK.
	IDs []string
	// Pointer is the JSON Pointer into the payload, with schema_violation.
	Pointer string
}

// FieldError is one bad field and what is wrong with it.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Msg }

// Is lets errors.Is compare by code: errors.Is(err, &wire.Error{Code: wire.NotFound}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error from a code and a formatted sentence.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// AsError finds the *Error in err's chain. Any other error becomes internal with a sentence that
// reveals nothing: the caller logs err itself.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Msg: "internal error; the server's log has the detail"}
}

// RetryAfterMS is RetryAfter in whole milliseconds, rounded up so that the time is enough, and at
// least 1 where the code carries one.
func (e *Error) RetryAfterMS() (ms int64, ok bool) {
	switch e.Code {
	case RateLimited, Overloaded, StoreUnavailable:
		ms = int64((e.RetryAfter + time.Millisecond - 1) / time.Millisecond)
		return max(ms, 1), true
	}
	return 0, false
}
