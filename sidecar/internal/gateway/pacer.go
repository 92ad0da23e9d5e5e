package gateway

import (
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// pacer is the delivery bucket of one connection and topic, which its
// subscriptions to the topic share. It follows the topic's policy.
type pacer struct {
	policies *policy.Current
	topic    string
	bucket   *limit.Bucket
	used     int // subscriptions; guarded by the connection's mu
}

func newPacer(policies *policy.Current, topic string) *pacer {
	p := &pacer{policies: policies, topic: topic}
	p.bucket = limit.NewBucket(p.rate(), time.Now())
	return p
}

func (p *pacer) rate() limit.Rate {
	perSecond := p.policies.Load().Topic(p.topic).Delivery.Rate
	if perSecond <= 0 {
		return limit.Rate{}
	}
	return limit.OneSecond(perSecond)
}

// Take takes a token, or says when to ask again.
func (p *pacer) Take(now time.Time) (wait time.Duration, ok bool) {
	p.bucket.Retune(p.rate(), now)
	v := p.bucket.Take(1, now)
	return v.Wait, v.OK
}

// pacer returns the topic's pacer, for one more subscription. It requires mu.
func (c *conn) pacer(topic string) *pacer {
	p := c.pacers[topic]
	if p == nil {
		c.dropPacers(time.Now())
		p = newPacer(c.cfg.Policies, topic)
		if c.pacers == nil {
			c.pacers = make(map[string]*pacer)
		}
		c.pacers[topic] = p
	}
	p.used++
	return p
}

// dropPacers forgets those that nobody uses and that are full, which is the
// same as new: subscribing again is no way to more tokens. It requires mu.
func (c *conn) dropPacers(now time.Time) {
	for topic, p := range c.pacers {
		if p.used == 0 && p.bucket.Full(now) {
			delete(c.pacers, topic)
		}
	}
}
