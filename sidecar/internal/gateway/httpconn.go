package gateway

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// httpConn is what the requests of one TCP connection share of the limits.
type httpConn struct {
	publish *admit.Connection

	mu     sync.Mutex
	pacers map[string]*pacer // of deliveries, by topic
}

// pacer is the connection's delivery bucket of a topic, until release.
func (c *httpConn) pacer(policies *policy.Current, topic string) (p *pacer, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p = c.pacers[topic]; p == nil {
		now := time.Now()
		for name, old := range c.pacers { // one that is full is the same as a new one
			if old.used == 0 && old.bucket.Full(now) {
				delete(c.pacers, name)
			}
		}
		p = newPacer(policies, topic)
		if c.pacers == nil {
			c.pacers = make(map[string]*pacer)
		}
		c.pacers[topic] = p
	}
	p.used++
	return p, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.used--
	}
}

// takeSome takes as many tokens as there are, up to n; or none, and says when
// there is one again.
func (p *pacer) takeSome(n int, now time.Time) (taken limit.Charge, wait time.Duration) {
	p.bucket.Retune(p.rate(), now)
	n = int(min(float64(n), max(p.bucket.Tokens(now), 1)))
	charges := [1]limit.Charge{{Bucket: p.bucket, N: n}}
	v := limit.TakeAll(charges[:], now)
	if !v.OK {
		return limit.Charge{}, max(v.Wait, time.Millisecond)
	}
	return charges[0], 0
}

// giveBack returns n of the tokens that were taken.
func giveBack(taken limit.Charge, n int, now time.Time) {
	taken.N = n
	limit.RefundAll([]limit.Charge{taken}, now)
}
