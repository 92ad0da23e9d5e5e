// Package pause waits for a time that may be cut short. It knows nothing of what is waited for.
package pause

import (
	"context"
	"time"
)

// For waits for d. It reports whether ctx has not ended meanwhile.
func For(ctx context.Context, d time.Duration) bool { return Unless(ctx, d, nil) }

// Unless waits for d, or until early says that it is enough. It reports whether ctx has not ended meanwhile.
func Unless(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
