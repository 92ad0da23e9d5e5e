package dispatch

import (
	"math"
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
