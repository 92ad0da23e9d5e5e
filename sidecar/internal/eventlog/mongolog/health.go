package mongolog

import (
	"context"
	"sync"
)

// healthKey finds the health in the context of an operation.
type healthKey struct{}

// health is how the last operation that asked the server went.
type health struct {
	mu  sync.Mutex
	err error
}

func (h *health) failed(err error) {
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
}

func (h *health) reached() { h.failed(nil) }

// Err is why the last operation failed that asked the server, or nil. A Ping that succeeds clears
// it, so a caller that depends on Err pings while it is not nil.
func (l *Log) Err() error {
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	return l.health.err
}

// Ping asks the primary whether it is there.
func (l *Log) Ping(ctx context.Context) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := l.client.Ping(ctx, nil); err != nil {
		return unavailable(ctx, "ping", err)
	}
	l.health.reached()
	return nil
}
