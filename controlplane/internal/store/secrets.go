package store

import "context"

// Secrets are what the control planes of one store have in common, and tell
// nobody. It is safe for concurrent use.
type Secrets interface {
	// Secret returns what the store has under a name. Where it has nothing, that is
	// fresh from now on, for whoever asks.
	Secret(ctx context.Context, name string, fresh []byte) ([]byte, error)
}
