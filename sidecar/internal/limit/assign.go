package limit

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Still is the rate of a bucket that does not fill: it has the tokens that it
// is given. (A rate of 0 would be no limit.)
const Still = 1e-12

// NewEmptyBucket makes a bucket that holds no tokens yet.
func NewEmptyBucket(r Rate, now time.Time) *Bucket {
	b := NewBucket(r, now)
	if b.tokens != nil {
		b.tokens.AllowN(now, r.Burst)
	}
	return b
}

// Assign changes the rate from now on and adds granted tokens, up to the new
// burst. It returns how many tokens the bucket held above the new burst before
// the grant, which are gone. A bucket without a limit gets one that starts with
// the granted tokens.
func (b *Bucket) Assign(r Rate, granted int, now time.Time) (removed float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.forward(now)
	if b.tokens == nil || r.PerSecond <= 0 {
		b.start(r, now)
		if b.tokens != nil {
			b.tokens.AllowN(now, r.Burst)
		}
	} else if r != b.tuned {
		removed = max(0, b.tokens.TokensAt(now)-float64(r.Burst))
		b.tuned = r
		b.tokens.SetLimitAt(now, rate.Limit(r.PerSecond))
		b.tokens.SetBurstAt(now, r.Burst)
	}
	if b.tokens != nil && granted > 0 {
		b.tokens.AllowN(now, -granted) // as a refund does
	}
	return removed
}

// Tokens is how many tokens there are at now: infinitely many without a limit.
func (b *Bucket) Tokens(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		return math.Inf(1)
	}
	return b.tokens.TokensAt(b.forward(now))
}

// Missed is the largest number of tokens that was refused for want of them
// since it was last called; 0: none was.
func (b *Bucket) Missed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.missed
	b.missed = 0
	return n
}
