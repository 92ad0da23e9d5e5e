package store

import "context"

// Backend is all that a control plane stores.
type Backend interface {
	Store
	Roster
	Secrets
	Usage
	// Ping reports whether the store can be used.
	Ping(ctx context.Context) error
}

// Secrets are shared by the control planes of one store, and by no other program. It is safe for
// concurrent use.
type Secrets interface {
	// Secret returns the store's secret of a name. If there is none, it stores fresh and returns
	// it, to all callers from then on.
	Secret(ctx context.Context, name string, fresh []byte) ([]byte, error)
}
