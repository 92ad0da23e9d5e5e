package eventlog

import "context"

// Snapshot has the events of one topic as they were at one moment; later changes do not show. While
// it is open the store cannot free the space of events removed since, so callers keep it open for
// one answer only.
type Snapshot interface {
	// Scan is Reader's, among these events.
	Scan(ctx context.Context, topic string, q ScanQuery, b Bounds) ([]*Record, error)
	// Close releases the snapshot. Closing again does nothing.
	Close()
}
