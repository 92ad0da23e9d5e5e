// Package pacer limits deliveries to the rate in the current policy of their topic.
package pacer

import (
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// Pacer is a delivery bucket of one topic. It is safe for concurrent use.
type Pacer struct {
	policies *policy.Current
	topic    string
	bucket   *limit.Bucket
}

// New makes a bucket that is full at now.
func New(policies *policy.Current, topic string, now time.Time) *Pacer {
	p := &Pacer{policies: policies, topic: topic}
	p.bucket = limit.NewBucket(p.rate(), now)
	return p
}

func (p *Pacer) rate() limit.Rate {
	perSecond := p.policies.Load().Topic(p.topic).Delivery.Rate
	if perSecond <= 0 {
		return limit.Rate{}
	}
	return limit.OneSecond(perSecond)
}

// Take takes a token, or returns when to ask again.
func (p *Pacer) Take(now time.Time) (wait time.Duration, ok bool) {
	p.bucket.Retune(p.rate(), now)
	v := p.bucket.Take(1, now)
	return v.Wait, v.OK
}

// TakeSome takes the available tokens, up to n; or none, and returns when there is one again.
func (p *Pacer) TakeSome(n int, now time.Time) (taken limit.Charge, wait time.Duration) {
	p.bucket.Retune(p.rate(), now)
	n = int(min(float64(n), max(p.bucket.Tokens(now), 1)))
	charges := [1]limit.Charge{{Bucket: p.bucket, N: n}}
	v := limit.TakeAll(charges[:], now)
	if !v.OK {
		return limit.Charge{}, max(v.Wait, time.Millisecond)
	}
	return charges[0], 0
}

// Full reports whether the bucket equals a new one.
func (p *Pacer) Full(now time.Time) bool { return p.bucket.Full(now) }
