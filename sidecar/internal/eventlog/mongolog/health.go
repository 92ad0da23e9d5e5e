package mongolog

import "context"

// reached notes that the server has answered.
func (l *Log) reached() { l.health.Store(nil) }

// Err is the error of the last operation that asked the server, or nil. A successful Ping clears
// it, so a caller that depends on Err pings while it is not nil.
func (l *Log) Err() error {
	if err := l.health.Load(); err != nil {
		return *err
	}
	return nil
}

// Ping asks the primary for a reply.
func (l *Log) Ping(ctx context.Context) error {
	return l.within(ctx, "ping", func(ctx context.Context) error { return l.client.Ping(ctx, nil) })
}
