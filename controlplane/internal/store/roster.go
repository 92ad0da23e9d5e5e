package store

import "context"

// Roster has the sidecars that have connected to any control plane of the store and may have left
// events behind: if one of them is gone, so are events that no other has. It is safe for concurrent
// use.
type Roster interface {
	// Enter replaces the entry with its key, unless that life of it has left: a request may be
	// carried out long after its sender has given up.
	Enter(ctx context.Context, e RosterEntry) error
	// Leave removes the entry with a key, because that life of it has left, or because it was
	// forgotten, if life is "". If a later life is connected, its control plane enters it again.
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
