package dispatch

import (
	"math/rand/v2"
	"time"
)

// backoffJitter is the largest part of a backoff that is added to it, so that events that failed
// together are not delivered again together. Nothing is subtracted: a backoff promises a least time
// before an event is a dead letter.
const backoffJitter = 0.25

// Pause is the backoff before delivery number attempts+1, with jitter.
func (o Options) Pause(attempts int) time.Duration {
	d := o.backoff(attempts)
	return d + time.Duration(backoffJitter*rand.Float64()*float64(d))
}

// backoff is the least wait before delivery number attempts+1: the policy's minimum, doubled with
// every attempt, up to its maximum.
func (o Options) backoff(attempts int) time.Duration {
	d := o.Backoff.Min
	for i := 1; i < attempts && d < o.Backoff.Max; i++ {
		d *= 2
	}
	return min(d, o.Backoff.Max)
}
