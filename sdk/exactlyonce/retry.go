package exactlyonce

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// retries paces the repetition of what may be repeated.
type retries struct {
	until time.Time // zero: as long as the context
	pause time.Duration
}

// again waits, a little longer each time, and reports whether to try again.
func (r *retries) again(ctx context.Context) bool {
	r.pause = min(max(2*r.pause, firstPause), lastPause)
	wait := r.pause/2 + rand.N(r.pause/2)
	if !r.until.IsZero() && time.Until(r.until) < wait {
		return false
	}
	return sleep(ctx, wait)
}

// sleep waits and reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
