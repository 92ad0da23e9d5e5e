package dispatch

import (
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
