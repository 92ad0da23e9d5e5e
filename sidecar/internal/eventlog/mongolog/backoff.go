package mongolog

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// Bounds of one wait between two tries.
const (
	// shortWait: another sidecar's write is on its way to the majority.
	shortWait = 20 * time.Millisecond
	// longWait: the server may be away.
	longWait = 500 * time.Millisecond
)

// backoff counts failed tries. The zero value has none.
type backoff struct{ tries int }

// sleep waits 1, 2, 4, … ms, at most longest, less up to half of it, so that waiters for the same
// thing do not retry together.
func (b *backoff) sleep(ctx context.Context, c clock.Clock, longest time.Duration) error {
	d := min(time.Millisecond<<min(b.tries, 20), longest)
	b.tries++
	if !c.Sleep(ctx, d-rand.N(d/2+1)) {
		return ctx.Err()
	}
	return nil
}
