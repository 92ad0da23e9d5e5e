package session

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
)

// Connection has the limits that everything on one TCP connection shares.
type Connection struct {
	Publishes *admit.Connection
	policies  *policy.Current
	local     net.Addr     // nil: it counts for nobody
	place     budget.Place // what it counts as

	keeping sync.Mutex
	kept    bool

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

// Keep has the caller's connection count for the identity that is known first on it, until it is closed. Before, it makes room for
// others when its listener has as many as it may. The error is a *wire.Error.
func (s *Session) Keep() error {
	c := s.Connection
	if c.local == nil || s.of.Access.Authenticates() && !s.Identity().Verified {
		return nil
	}
	c.keeping.Lock()
	defer c.keeping.Unlock()
	if c.kept {
		return nil
	}
	share := s.Share()
	err := listen.Keep(c.local, func() error { return share.Enter(c.place) }, func() { share.Leave(c.place) })
	if err != nil && s.of.ConnectionRefused != nil {
		s.of.ConnectionRefused(c.place)
	}
	if errors.Is(err, listen.ErrFull) {
		err = &wire.Error{Code: wire.Overloaded, RetryAfter: time.Second, Msg: "this " + err.Error() + ": try again later"}
	}
	c.kept = err == nil
	return err
}
