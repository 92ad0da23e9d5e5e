package sluice

import "github.com/sluice-bus/sluice/sdk/wire"

// The contract's types under this package's name, so that most programs import nothing else.
type (
	// Event is one event: to publish, Topic and Payload are enough.
	Event = wire.Event
	// Headers are an event's headers.
	Headers = wire.Headers
	// Receipt is the answer to a publisher for an accepted event.
	Receipt = wire.Receipt
	// Error is a refusal by the sidecar.
	Error = wire.Error
)
