package limit

import (
	"cmp"
	"time"
)

// Charge is a number of tokens to take from a bucket. [TakeAll] stores in it the state that
// [RefundAll] needs.
type Charge struct {
	Bucket *Bucket
	N      int // 0 or less takes nothing

	era uint64
}

// Verdict says whether tokens were taken, and if not, why.
type Verdict struct {
	OK bool
	// Refused is the index of the refused charge. If there are several, it is one that can never be
	// met, else the one with the longest wait.
	Refused int
	// Wait is how long to wait until the same charges can be met, if no tokens are taken in the
	// meantime; never 0 unless OK or OverBurst. Waits of more than 70 years are cut short. It is an
	// estimate if it depends on Rate.Pace, or on a Burst that has to grow to Rate.Most.
	Wait time.Duration
	// OverBurst says that the bucket never holds that many tokens, so waiting does not help; the
	// caller may ask for no more than Burst.
	OverBurst bool
	Burst     int
}

// TakeAll takes the tokens of all charges at once, or none of any. No other caller ever sees some
// of them taken.
//
// It locks the buckets in the order of the charges, so all callers have to name buckets that they
// share in the same order (connection, topic, bytes), and each bucket once.
func TakeAll(charges []Charge, now time.Time) Verdict {
	for i := range charges {
		b := charges[i].Bucket
		b.mu.Lock()
		now = b.forward(now)
	}
	v := judge(charges, now)
	for i := range charges {
		c := &charges[i]
		b := c.Bucket
		if v.OK {
			c.era, b.latest = b.era, now
			if b.tokens != nil && c.N > 0 && !b.tokens.AllowN(now, c.N) {
				panic("limit: a counted token is missing")
			}
		}
		b.mu.Unlock()
	}
	return v
}

// judge decides whether the charges can be met. It requires the buckets' locks.
func judge(charges []Charge, now time.Time) Verdict {
	v := Verdict{OK: true}
	for i := range charges {
		b, n := charges[i].Bucket, charges[i].N
		switch {
		case b.tokens == nil || n <= 0:
		case n > cmp.Or(b.tuned.Most, b.tuned.Burst):
			return Verdict{Refused: i, OverBurst: true, Burst: cmp.Or(b.tuned.Most, b.tuned.Burst)}
		case b.lacks(n, now):
			b.missed = max(b.missed, n)
			if wait := b.waitFor(n, now); v.OK || wait > v.Wait {
				v = Verdict{Refused: i, Wait: wait}
			}
		}
	}
	return v
}

// RefundAll gives the tokens of a TakeAll of the same charges back. The buckets are then as if
// nothing had been taken, but never fuller than their burst. Call it at most once for each TakeAll
// that was OK.
func RefundAll(charges []Charge, now time.Time) {
	for i := range charges {
		charges[i].refund(now)
	}
}

func (c *Charge) refund(now time.Time) {
	b := c.Bucket
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil || c.N <= 0 || c.era != b.era {
		return
	}
	// Taking a negative number adds it. Every later read of the bucket limits the tokens to the
	// burst.
	b.tokens.AllowN(b.forward(now), -c.N)
}
