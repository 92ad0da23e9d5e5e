package ws

import (
	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// unauthenticatedFrameBytes is the longest message of a connection that has not authenticated: enough for
// an AUTH with the longest token.
const unauthenticatedFrameBytes = 2 * wire.MaxTokenBytes

// Reasons that go with the close code 1008.
const (
	reasonRefused = "the authentication failed"
	reasonLate    = "no AUTH came in time"
	reasonFull    = "there are too many connections"
	reasonRevoked = "the token may not do this any more"
)

// authenticate handles AUTH. A client may send it again to continue with another token. A failed
// AUTH ends the connection.
func (c *conn) authenticate(req *codec.Request) {
	id, err := c.cfg.Sessions.Access.Token(c.ctx, req.Token, c.caller.From)
	if err == nil {
		err = c.keeps(&id)
	}
	if err != nil {
		c.replyError(req, err)
		c.over = &closing{websocket.StatusPolicyViolation, reasonRefused}
		return
	}
	first := c.caller.Become(&id)
	if err := c.caller.Keep(); err != nil {
		c.replyError(req, err)
		c.over = &closing{websocket.StatusTryAgainLater, reasonFull}
		return
	}
	if first {
		c.ws.SetReadLimit(int64(c.cfg.Limits.FrameBytes))
	}
	c.out.Charge(c.caller.Share())
	c.window.charge(c.caller.Share())
	c.replyOK(req)
}

// allowed reports whether id may do the op. authorize checks the events of a PUBLISH one by one.
func allowed(id *access.Identity, req *codec.Request) error {
	switch req.Op {
	case wire.OpPing, wire.OpPublish:
		return nil
	}
	return id.May(access.Subscribe, req.Topic, req.Group)
}

// authorize refuses the events of topics that id may not publish to.
func (c *conn) authorize(id *access.Identity, items []wire.PublishItem) {
	if !c.cfg.Sessions.Access.Authenticates() {
		return
	}
	for i := range items {
		it := &items[i]
		if it.Err != nil {
			continue
		}
		if err := id.May(access.Publish, it.Event.Topic, ""); err != nil {
			it.Err = wire.AsError(err)
		}
	}
}

// expelUnauthenticated ends the connection if it has not authenticated in time.
func (c *conn) expelUnauthenticated() {
	if c.ctx.Err() == nil && !c.caller.Known() {
		c.expel(wire.Errorf(wire.Unauthorized, "%s", reasonLate), reasonLate)
	}
}

// keeps reports whether id may have the subscriptions of this connection.
func (c *conn) keeps(id *access.Identity) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cfg.Sessions.Access.Authenticates() {
		return nil
	}
	for k := range c.subs {
		if err := id.May(access.Subscribe, k.Topic, k.Group); err != nil {
			return err
		}
	}
	return nil
}

// stillMay checks the rights to the subscriptions again after a subscription was added, since
// rightsChanged sees only later changes. An error ends the connection.
func (c *conn) stillMay() error {
	err := c.mayKeep()
	if err != nil {
		c.over = &closing{websocket.StatusPolicyViolation, reasonRevoked}
	}
	return err
}

// mayKeep reports whether the connection may keep its subscriptions, with the rights in force now.
func (c *conn) mayKeep() error {
	id, err := c.caller.Renew()
	if err != nil {
		return err
	}
	return c.keeps(id)
}

// expel ends a connection that has lost its rights. Ops are refused with why, and subscriptions end
// before the client is told.
func (c *conn) expel(why *wire.Error, reason string) {
	if !c.end(why) {
		return // it is ending already
	}
	for _, s := range c.removeSubscriptions() {
		s.Close(group.Disconnected)
	}
	c.hangUp(closing{websocket.StatusPolicyViolation, reason})
}
