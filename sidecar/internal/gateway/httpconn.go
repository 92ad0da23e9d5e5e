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
	pacers pacers // of deliveries
}

// pacer is the connection's delivery bucket of a topic, until release.
func (c *httpConn) pacer(policies *policy.Current, topic string) (p *sharedPacer, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.pacers.use(policies, topic)
	return p, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.used--
	}
}

// giveBack returns n of the tokens that were taken.
func giveBack(taken limit.Charge, n int, now time.Time) {
	taken.N = n
	limit.RefundAll([]limit.Charge{taken}, now)
}
