package ws

import (
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// What the tests from outside need to see of the inside.

const UnauthenticatedFrameBytes = unauthenticatedFrameBytes

type Conn = conn

// Only returns the one connection; nil if there is none.
func (s *Server) Only() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		return c
	}
	return nil
}

// Queued is how many bytes wait in the send buffer.
func (c *Conn) Queued() int { return c.out.Len() }

func (c *Conn) HasRoom() bool { return c.out.HasRoom() }

// Unanswered is how many events of publishes, and other ops, are unanswered.
func (c *Conn) Unanswered() int {
	c.window.mu.Lock()
	defer c.window.mu.Unlock()
	return c.window.events
}

// Authorize checks the events of a PUBLISH of the caller.
func Authorize(s *session.Sessions, caller *session.Session, items []wire.PublishItem) error {
	c := &conn{cfg: &Config{Sessions: s}, caller: caller}
	who, err := caller.Renew()
	if err == nil {
		c.authorize(who, items)
	}
	return err
}
