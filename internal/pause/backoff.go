package pause

import (
	"math/rand/v2"
	"time"
)

// Backoff is a wait before the next attempt that doubles, from First to Most. Half of each is
// random, so that callers that failed together do not retry together. It is for one goroutine.
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

// Reset starts over.
func (b *Backoff) Reset() { b.reached = 0 }
