package outbox

import (
	"math/rand/v2"
	"time"
)

// backoff is a wait that doubles, with jitter.
type backoff struct{ first, most, next time.Duration }

// step is how long to wait now: at least half of what it has come to.
func (b *backoff) step() time.Duration {
	b.next = max(b.first, min(2*b.next, b.most))
	return b.next/2 + rand.N(b.next/2+1)
}

func (b *backoff) reset() { b.next = 0 }
