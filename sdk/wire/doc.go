// Package wire is Sluice's contract in Go: the event, the frames of the
// WebSocket protocol, the error codes, and the limits on all of them. It knows
// the standard library alone, no transport, no store and no policy; both ends
// of a connection share it.
package wire
