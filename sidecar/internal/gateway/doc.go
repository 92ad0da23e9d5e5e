// Package gateway is the side of the sidecar that its application sees: a WebSocket with frames of
// JSON, and HTTP. It turns what arrives into calls of the packages behind it, and their answers
// into frames and responses. It must not know how an event is limited, stored or shared out among
// consumers.
//
// # A WebSocket connection
//
// One goroutine reads for as long as the connection lasts. It handles ops in the order of their
// arrival and never waits for the outcome of one: the goroutine that completes an op puts its reply
// into the send buffer. A second goroutine empties it into the socket, and exists only while there
// is something in it.
//
//	socket ──▶ read ──▶ window ──▶ publish, ack, subscribe, …
//	             ▲         ▲                 │ replies, events
//	        buffer full?   └─ answered ──────┤
//	             │                           ▼
//	socket ◀── flush ◀───────────────  send buffer ──▶ Room? Wake
//
// Both directions are bounded. While the send buffer holds more than its bound, subscriptions are
// told that there is no room and nothing is read from the socket. While more than a window of ops
// is unanswered, no further op is begun: an op counts as answered once its reply is in the send
// buffer. So the sidecar does not read from a client that does not read, and a client that
// publishes faster than the log is slowed by its own socket.
//
// # Consuming over HTTP
//
// A puller is the member of a group that stands for the requests that pull from it with equal opts.
// It takes as many events from the group as the waiting requests want, in the order of their
// arrival, and has it in flight when they are answered and gone: a lease names one delivery, so
// that any request can settle it. A pull is over when its answer is full, or when the group says
// that there is nothing more for it now.
//
//	pull ──▶ tokens of its connection ──▶ puller ──▶ group
//	ack, nack, modack: lease ────────────────────────▶ group
//
// A stream (server-sent events) is a subscription whose events count as acked once they are
// written. The request's goroutine writes what the group has put into the stream's buffer, which is
// bounded as a send buffer is.
//
// # Who may do what
//
// Config.Access decides; without it everybody may do everything. A request over HTTP has to show a
// token or a certificate; a WebSocket may also send one with AUTH, for which it has a short time
// and short frames. Each op is checked against what is in force when it comes, the events of a
// PUBLISH one by one: after their shape, before any limit. A change of rights ends the connections
// that may not be there, or not with their subscriptions, by closing them with 1008.
package gateway
