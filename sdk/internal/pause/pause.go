// Package pause waits for a time that may be cut short.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. It reports whether ctx has not ended meanwhile.
func For(ctx context.Context, d time.Duration) bool { return Unless(ctx, d, nil) }

// Unless waits for d, or until early says that it is enough. It reports whether ctx has not ended
// meanwhile.
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

// Backoff is a wait before the next try that doubles, from First to Most. Half of each is random,
// so that callers that failed together do not retry together. It is for one goroutine.
type Backoff struct {
	First, Most time.Duration

	reached time.Duration
}

// Step is how long to wait now.
func (b *Backoff) Step() time.Duration {
	b.reached = min(max(2*b.reached, b.First), b.Most)
	return b.reached/2 + rand.N(b.reached/2+1)
}

// Reached is the longest that the last Step can have been; 0: there was none.
func (b *Backoff) Reached() time.Duration { return b.reached }

// Reset starts with First again.
func (b *Backoff) Reset() { b.reached = 0 }
