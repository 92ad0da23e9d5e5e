// Package gateway is the sidecar's API for applications: a WebSocket with frames of JSON, and HTTP.
// It turns frames and requests into calls of other packages, and their answers into frames and
// responses. It must not know how an event is limited, stored or shared out among consumers.
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
// A puller is a member of a group that serves all requests that pull from the group with equal
// opts. It takes as many events from the group as the waiting requests want, and serves the
// requests in the order of their arrival. Its events stay in flight after the requests are
// answered: a lease names one delivery, so any request can settle it. A pull ends when its answer
// is full, or when the group has no more events for it now.
//
//	pull ──▶ tokens of its connection ──▶ puller ──▶ group
//	ack, nack, modack: lease ────────────────────────▶ group
//
// A stream (server-sent events) is a subscription whose events count as acked once they are
// written. The group puts events into the stream's buffer, and the request's goroutine writes them.
// The buffer is bounded like a send buffer.
//
// # Who may do what
//
// Config.Access decides; without it every client may do everything. An HTTP request has to show a
// token or a certificate. A WebSocket may instead send a token with AUTH, for which it has a short
// time and short frames. The gateway checks each op with the rights in force when it arrives. It
// checks the events of a PUBLISH one by one, after their shape and before any limit. After a change
// of rights it closes, with 1008, the connections that may no longer be open, or no longer have
// their subscriptions.
package gateway
