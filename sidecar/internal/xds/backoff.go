package xds

import (
	"math/rand/v2"
	"time"
)

// backoff is a wait that doubles. Half of it is left to chance, so that those
// who lost the same server do not come back together.
type backoff struct{ first, most, next time.Duration }

// step is how long to wait now.
func (b *backoff) step() time.Duration {
	b.next = max(b.first, min(2*b.next, b.most))
	return b.next/2 + rand.N(b.next/2+1)
}

func (b *backoff) reset() { b.next = 0 }
