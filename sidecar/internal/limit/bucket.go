// Package limit keeps token buckets: how many events or bytes may pass, and when to come back. It
// knows neither events nor policies nor clocks: callers pass rates and the time.
//
// # The bound
//
// A bucket of golang.org/x/time/rate holds up to burst tokens, starts full and gains rate tokens a
// second. In any window of t seconds in which it is not retuned it admits at most
//
//	burst + rate × t
//
// tokens. Three things are added to what x/time/rate does, so that the bound is exact:
//
//   - Time never runs backwards within a bucket. Callers read their clocks before they reach its
//     lock, so times arrive out of order, and rate.Limiter would pay out the interval between two
//     of them twice.
//   - Tokens are taken only when they are there; rate.Limiter rounds a debt of less than a
//     nanosecond down to none.
//   - Tokens given back fill the bucket at most up to its burst. Tokens given back a time d after
//     they were taken can have been replaced in the meantime, by at most rate × d. So a late refund
//     loosens the bound to burst + rate × (t + d). A refund within the call that took the tokens
//     loosens it by nothing that counts.
//
// [Bucket.Retune] keeps the tokens that there are, up to the new burst, so each stretch of time
// between two changes keeps to the bound of its own rate and burst, except for tokens that were
// taken before a change and refunded after it.
//
// # Refusals
//
// A refused request takes no tokens, and tokens that were taken can be given back exactly.
// Reservations are not used: a cancelled rate.Reservation does not give its tokens back when
// another one followed it.
//
// # Shares
//
// A bucket can hold this sidecar's share of a limit that is kept elsewhere: [Bucket.Assign] changes
// its rate, its burst and its tokens together, and loses none without saying so. In a window it
// admits at most the tokens that it had and was given, and rate × t. Since a share may grow, a
// bucket refuses as too large only what is above [Rate.Most], and what the share does not hold yet
// is refused with a wait that is an estimate.
package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is how a bucket is tuned. The zero value is no limit.
type Rate struct {
	PerSecond float64 // tokens per second; 0: no limit, whatever Burst
	Burst     int     // how many tokens the bucket holds; at least 1 where PerSecond is above 0 (see Most)

	// Most is the largest number that a caller may ask for; 0: Burst. A request above Burst has to
	// wait until Burst grows, which the assigner of shares decides. Such a bucket may have a Burst
	// of 0.
	Most int
	// Pace is how many tokens per second are expected, including assignments, if that is more than
	// PerSecond. Waits are computed from it.
	Pace float64
}

// Still is the rate of a bucket that does not fill: it has only the tokens that it is given. (A
// rate of 0 would mean no limit.)
const Still = 1e-12

// OneSecond is a rate whose burst is one second's worth of tokens, and at least one: that of
// deliveries.
func OneSecond(perSecond float64) Rate {
	return Rate{PerSecond: perSecond, Burst: int(min(max(perSecond, 1), math.MaxInt32))}
}

// Bucket is a token bucket. It is safe for concurrent use.
type Bucket struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	tuned  Rate
	tokens *rate.Limiter // nil: no limit
	latest time.Time     // the latest time passed by a caller
	// era counts how often the bucket was filled because a limit began or ended. Tokens taken in an
	// earlier era are not owed.
	era uint64
	// missed is the largest number of tokens refused since the last report.
	missed int
}

// NewBucket makes a full bucket.
func NewBucket(r Rate, now time.Time) *Bucket {
	b := &Bucket{}
	b.start(r, now)
	return b
}

// NewEmptyBucket makes a bucket that holds no tokens yet.
func NewEmptyBucket(r Rate, now time.Time) *Bucket {
	b := &Bucket{}
	b.Assign(r, 0, now)
	return b
}

func (b *Bucket) start(r Rate, now time.Time) {
	b.tuned, b.latest, b.tokens = r, now, nil
	b.era++
	if r.PerSecond > 0 {
		b.tokens = rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
	}
}

// Retune changes the rate from now on. The bucket keeps its tokens, up to the new burst; a bucket
// that had no limit starts full. It costs little if nothing changes.
func (b *Bucket) Retune(r Rate, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r == b.tuned {
		return
	}
	b.retune(r, b.forward(now))
}

// retune returns how many tokens were above the new burst; these are lost. It requires b.mu, and a
// time from forward.
func (b *Bucket) retune(r Rate, now time.Time) (removed float64) {
	if b.tokens == nil || r.PerSecond <= 0 {
		b.start(r, now)
		return 0
	}
	removed = max(0, b.tokens.TokensAt(now)-float64(r.Burst))
	b.tuned = r
	b.tokens.SetLimitAt(now, rate.Limit(r.PerSecond))
	b.tokens.SetBurstAt(now, r.Burst)
	return removed
}

// Assign changes the rate from now on and adds granted tokens, up to the new burst. It returns how
// many tokens the bucket held above the new burst before the grant; these are lost. A bucket
// without a limit gets one that starts with the granted tokens.
func (b *Bucket) Assign(r Rate, granted int, now time.Time) (removed float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.forward(now)
	if b.tokens == nil || r != b.tuned {
		unlimited := b.tokens == nil
		removed = b.retune(r, now)
		if unlimited && b.tokens != nil {
			b.tokens.AllowN(now, r.Burst) // it starts empty
		}
	}
	if b.tokens != nil && granted > 0 {
		b.tokens.AllowN(now, -granted) // as a refund does
	}
	return removed
}

// Tokens is how many tokens the bucket has at now: infinitely many without a limit.
func (b *Bucket) Tokens(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		return math.Inf(1)
	}
	return b.tokens.TokensAt(b.forward(now))
}

// Missed is the largest number of tokens that was refused, since there were too few, since the last
// call; 0: none was.
func (b *Bucket) Missed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.missed
	b.missed = 0
	return n
}

// Take takes n tokens or none: see [TakeAll].
func (b *Bucket) Take(n int, now time.Time) Verdict {
	charges := [1]Charge{{Bucket: b, N: n}}
	return TakeAll(charges[:], now)
}

// Full reports whether the bucket has all the tokens that it can hold, so that it equals a new one.
func (b *Bucket) Full(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tokens == nil || b.tokens.TokensAt(b.forward(now)) >= float64(b.tuned.Burst)
}

// forward is now, or the latest time that the bucket has seen if that is later. It requires b.mu.
func (b *Bucket) forward(now time.Time) time.Time {
	if now.After(b.latest) {
		b.latest = now
	}
	return b.latest
}

// lacks reports whether n tokens are missing at now, a time from forward. It requires b.mu.
func (b *Bucket) lacks(n int, now time.Time) bool {
	return b.tokens != nil && b.tokens.TokensAt(now) < float64(n)
}

// longestWait stands for every longer one; sums with it do not overflow.
const longestWait = time.Duration(math.MaxInt64 / 4)

// waitFor is how long it takes from now, a time from forward, until the bucket has n tokens if none
// are taken. It requires b.mu.
func (b *Bucket) waitFor(n int, now time.Time) time.Duration {
	missing := float64(n) - b.tokens.TokensAt(now)
	ns := math.Ceil(missing / max(b.tuned.PerSecond, b.tuned.Pace) * float64(time.Second))
	if ns >= float64(longestWait) {
		return longestWait
	}
	wait := max(time.Duration(ns), 1)
	if n > b.tuned.Burst || b.tuned.Pace > b.tuned.PerSecond {
		return wait // an estimate: the tokens come with an assignment
	}
	// Floating point can leave the sum a hair below n: step past it.
	for step := time.Duration(1); b.lacks(n, now.Add(wait)) && wait < longestWait; step *= 2 {
		wait += step
	}
	return min(wait, longestWait)
}
