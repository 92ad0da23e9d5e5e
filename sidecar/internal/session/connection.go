package session

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
)

// Connection has the limits that everything on one TCP connection shares.
type Connection struct {
	Publishes *admit.Connection
	policies  *policy.Current

	mu         sync.Mutex
	deliveries map[string]*sharedPacer // by topic; nil: none
}

type sharedPacer struct {
	*pacer.Pacer
	users int
}

// Pacer returns the delivery bucket of a topic, and counts one more user until release. Before it
// makes a bucket, it forgets unused full ones. These equal new ones, so a client gains no tokens by
// subscribing again.
func (c *Connection) Pacer(topic string) (p *pacer.Pacer, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := c.deliveries[topic]
	if shared == nil {
		now := time.Now()
		for name, old := range c.deliveries {
			if old.users == 0 && old.Full(now) {
				delete(c.deliveries, name)
			}
		}
		shared = &sharedPacer{Pacer: pacer.New(c.policies, topic, now)}
		if c.deliveries == nil {
			c.deliveries = make(map[string]*sharedPacer)
		}
		c.deliveries[topic] = shared
	}
	shared.users++
	return shared.Pacer, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		shared.users--
	}
}
