package eventlog

import "context"

// Snapshot is the events of one topic as they were at one moment: what happens
// to them later does not show. It keeps the store from giving up the room of
// what was removed since, so it is for as long as one answer takes.
type Snapshot interface {
	// Scan is Reader's, among these events.
	Scan(ctx context.Context, topic string, q ScanQuery, b Bounds) ([]*Record, error)
	// Close lets go of it. Closing again does nothing.
	Close()
}
