// Package pause waits for a time that may be cut short, and for work. It must not know the work.
package pause

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// For waits for d. It reports whether ctx has not ended meanwhile.
func For(ctx context.Context, d time.Duration) bool { return clock.System().Sleep(ctx, d) }

// Unless waits for d, or until early says that it is enough. It reports whether ctx has not ended
// meanwhile.
func Unless(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	return clock.System().SleepUnless(ctx, d, early)
}
