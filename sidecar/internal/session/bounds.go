package session

import "time"

// Bounds of the resources of one WebSocket connection, and of all of HTTP.
type Bounds struct {
	// SendBufferBytes is how much may wait for the client to read it. One turn's deliveries, and
	// the replies to requests that were read already, may exceed it.
	SendBufferBytes int
	// UnansweredEvents is how many unanswered events of publishes, and other ops that wait for the
	// log, a connection may have; UnansweredBytes is the size of their frames. One op is always
	// admitted.
	UnansweredEvents int
	UnansweredBytes  int
	// ReceiveTimeout is how long a message, or the body of a request, may take to arrive once it
	// has begun.
	ReceiveTimeout time.Duration
	// SlowClientTimeout is how long a client may read nothing while data waits for it. The client is
	// disconnected after that time, and at the latest after twice that time.
	SlowClientTimeout time.Duration
	// PingAfter is how long nothing goes either way on a WebSocket before its client is pinged, and
	// how long the client has to answer.
	PingAfter time.Duration
	// Subscriptions is how many a connection may have.
	Subscriptions int
	// AuthTimeout is how long a connection may take to authenticate, if it has to.
	AuthTimeout time.Duration

	// PullerIdle is how long an unused member that stands for pulls stays, without events in flight.
	PullerIdle time.Duration
}

// DefaultBounds let the worst client use about ten megabytes per connection.
func DefaultBounds() Bounds {
	return Bounds{
		SendBufferBytes:   1 << 20,
		UnansweredEvents:  4096,
		UnansweredBytes:   8 << 20,
		ReceiveTimeout:    time.Minute,
		SlowClientTimeout: 5 * time.Minute,
		PingAfter:         30 * time.Second,
		Subscriptions:     1000,
		AuthTimeout:       10 * time.Second,
		PullerIdle:        time.Minute,
	}
}
