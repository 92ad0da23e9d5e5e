package store

import "context"

// Roster is the sidecars that have connected to any control plane of the store and
// have not said that they leave nothing behind: where one is gone, so are events
// that nobody else has. It is safe for concurrent use.
type Roster interface {
	// Enter puts an entry in place of the one with its key, unless that life of it
	// has left: a request may be carried out long after its sender has given it up.
	Enter(ctx context.Context, e RosterEntry) error
	// Leave removes the entry with a key, because that life of it has left; or has
	// been forgotten, where life is "". Where a later life is there, its control
	// plane enters it again.
	Leave(ctx context.Context, key, life string) error
	// Entered returns all entries, ascending by Key.
	Entered(ctx context.Context) ([]RosterEntry, error)
}

// RosterEntry is one sidecar.
type RosterEntry struct {
	Key  string // of all its lives
	Life string // of one; not ""
	Doc  []byte
}
