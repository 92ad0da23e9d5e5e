package dispatch

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Options are a subscription's options in force: the client's, bounded by the policy's, and the
// policy's where the client set none.
type Options struct {
	MaxInflight int
	AckTimeout  time.Duration
	MaxAttempts int
	Ordered     bool
	ExactlyOnce bool
	DedupeTTL   time.Duration
	Filter      *wire.Filter
	Backoff     policy.Backoff
}

// defaultDedupeTTL is how long exactlyOnce remembers an acked id.
const defaultDedupeTTL = 7 * 24 * time.Hour

// resolve applies a topic's policy to a client's options.
func resolve(o wire.SubscribeOptions, d policy.Delivery) Options {
	r := Options{
		MaxInflight: d.MaxInflight,
		AckTimeout:  d.AckTimeout,
		MaxAttempts: d.MaxAttempts,
		Ordered:     true,
		ExactlyOnce: o.ExactlyOnce,
		DedupeTTL:   defaultDedupeTTL,
		Filter:      o.Filter,
		Backoff:     d.Backoff,
	}
	if o.MaxInflight != nil {
		r.MaxInflight = min(r.MaxInflight, *o.MaxInflight)
	}
	if o.AckTimeoutMS != nil {
		r.AckTimeout = min(r.AckTimeout, time.Duration(*o.AckTimeoutMS)*time.Millisecond)
	}
	if o.MaxAttempts != nil {
		r.MaxAttempts = min(r.MaxAttempts, *o.MaxAttempts)
	}
	if o.Ordered != nil {
		r.Ordered = *o.Ordered
	}
	if o.DedupeTTLMS != nil {
		r.DedupeTTL = time.Duration(*o.DedupeTTLMS) * time.Millisecond
	}
	return r
}

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
