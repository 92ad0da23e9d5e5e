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
	who := c.caller.Identity()
	done := func(err error) {
		c.note(who, req, err)
		if err != nil {
			c.answerError(req, err)
		} else {
			c.answerOK(req)
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
	var unknown error // of the first one; the others have their new deadline all the same
	for _, id := range req.IDs {
		if !s.member.Extend(id, time.Duration(*req.ExtendMS)*time.Millisecond) && unknown == nil {
			unknown = wire.Errorf(wire.UnknownID, "no event with id %q is in flight at this subscription", refusal.Shorten(id))
		}
	}
	if unknown != nil {
		c.replyError(req, unknown)
		return
	}
	c.replyOK(req)
}
