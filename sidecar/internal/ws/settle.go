package ws

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// settle handles ACK and NACK. The reply follows when the group's progress is durable.
func (c *conn) settle(req *codec.Request, size int) {
	s, err := c.subscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	if !c.window.enter(1, size) {
		return
	}
	done := func(err error) {
		if err != nil {
			c.replyError(req, err)
		} else {
			c.replyOK(req)
		}
		c.window.leave(1, size)
	}
	if req.Op == wire.OpAck {
		s.member.Ack(req.IDs, done)
		return
	}
	s.member.Nack(req.IDs, req.Nack, done)
}

// extend handles MODACK.
func (c *conn) extend(req *codec.Request) {
	s, err := c.subscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	found := false
	for _, id := range req.IDs {
		found = s.member.Extend(id, time.Duration(*req.ExtendMS)*time.Millisecond) || found
	}
	if !found {
		c.replyError(req, wire.Errorf(wire.UnknownID, "no event with id %q is in flight at this subscription", refusal.Shorten(req.IDs[0])))
		return
	}
	c.replyOK(req)
}
