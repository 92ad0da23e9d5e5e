package dispatch

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// The policy's limits of a group apply to all of its members on all sidecars together. A sidecar's
// part of a limit is its part of the partitions. No partition has two owners, so the parts never
// exceed the whole, and sidecars need not ask each other.

// limits are those of the policy in force.
type limits struct {
	policy *policy.Effective
	policy.GroupLimits
	owns, of int             // partitions of this sidecar, and all
	token    [1]limit.Charge // of the bucket for the rate, if there is one
}

// resolve applies the policy to a member's request.
func (l *limits) resolve(o wire.SubscribeOptions) Options {
	d := l.policy.Delivery
	if l.MaxInflight > 0 {
		d.MaxInflight = l.MaxInflight
	}
	return resolve(o, d)
}

// inflight is how many events the group may have in flight here. A sidecar that has partitions may
// have one.
func (l *limits) inflight() int {
	switch {
	case l.Paused:
		return 0
	case l.MaxInflight == 0:
		return math.MaxInt
	}
	return max(1, l.MaxInflight*l.owns/max(1, l.of))
}

// tune follows the rate, and the partitions that this sidecar owns of all. The bucket starts full,
// and gains no tokens when its rate grows.
func (l *limits) tune(owns, of int, now time.Time) {
	l.owns, l.of = owns, of
	switch {
	case l.Rate == 0:
		l.token = [1]limit.Charge{}
	case owns > 0: // else nothing is delivered, and a rate of 0 would mean no limit
		r := limit.OneSecond(l.Rate * float64(owns) / float64(of))
		if l.token[0].Bucket == nil {
			l.token[0] = limit.Charge{Bucket: limit.NewBucket(r, now), N: 1}
		}
		l.token[0].Bucket.Retune(r, now)
	}
}

// take takes a token for a delivery, or returns when to ask again.
func (l *limits) take(now time.Time) (wait time.Duration, ok bool) {
	if l.token[0].Bucket == nil {
		return 0, true
	}
	v := limit.TakeAll(l.token[:], now)
	return v.Wait, v.OK
}

// refund gives back the last token.
func (l *limits) refund(now time.Time) {
	if l.token[0].Bucket != nil {
		limit.RefundAll(l.token[:], now)
	}
}

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
