package gateway

import (
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// follower is what subscriptions with and without a group have in common.
type follower interface {
	Start()
	Wake()
	Pause()
	Resume()
	Close(how group.Leaving)
}

// subscription is a connection's side of one subscription.
type subscription struct {
	follower
	deliveries
	pacer      *pacer
	partitions []int // to be told as assigned; nil: the client did not ask
}

// subscribe adds a subscription. Its OK is in the outbox before the first
// event.
func (c *conn) subscribe(req *wire.Request) {
	s, err := c.addSubscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	c.replyOK(req)
	if s.partitions != nil {
		c.assignment(wire.OpAssigned, s)
	}
	s.Start()
}

// addSubscription makes a subscription that is not started. Only the reader
// adds and removes, so what it has looked up stays, but for a shutdown.
func (c *conn) addSubscription(req *wire.Request) (*subscription, error) {
	s := &subscription{deliveries: newDeliveries(c, req)}
	c.mu.Lock()
	_, twice := c.subs[s.subKey]
	full := len(c.subs) >= c.cfg.Bounds.Subscriptions
	if !twice && !full {
		s.pacer = c.pacer(s.topic)
	}
	c.mu.Unlock()
	if twice {
		return nil, wire.Errorf(wire.AlreadySubscribed, "this connection is subscribed to %s already", s.subKey)
	}
	if full {
		return nil, wire.Errorf(wire.BadRequest, "this connection has %d subscriptions, and no more are allowed on one connection", c.cfg.Bounds.Subscriptions)
	}
	err := s.join(c, req)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.stopping {
		s.Close(group.Unsubscribed)
		err = errStopping()
	}
	if err != nil {
		s.pacer.used--
		return nil, refusal(err)
	}
	if c.subs == nil {
		c.subs = make(map[subKey]*subscription)
	}
	c.subs[s.subKey] = s
	return s, nil
}

// join subscribes with the group, or alone.
func (s *subscription) join(c *conn, req *wire.Request) error {
	asked := group.Subscription{
		Topic: s.topic, Group: s.group, Options: req.Subscribe,
		Sink: s, Pacer: s.pacer, MemberID: c.name,
	}
	if s.group == "" {
		f, err := c.cfg.Groups.Follow(c.ctx, asked)
		s.follower = f
		return err
	}
	m, err := c.cfg.Groups.Subscribe(c.ctx, asked)
	if err != nil {
		return err
	}
	s.follower, s.member = m, m
	if !req.Subscribe.Rebalance {
		return nil
	}
	tp, err := c.cfg.Log.LookupTopic(c.ctx, s.topic)
	if err != nil {
		m.Close(group.Unsubscribed)
		return err
	}
	// One sidecar owns all partitions of a group.
	s.partitions = make([]int, tp.Partitions)
	for i := range s.partitions {
		s.partitions[i] = i
	}
	return nil
}

// subscription finds the one that the request names.
func (c *conn) subscription(req *wire.Request) (*subscription, error) {
	k := subKey{req.Topic, req.Group}
	c.mu.Lock()
	s := c.subs[k]
	c.mu.Unlock()
	if s == nil {
		return nil, wire.Errorf(wire.NotSubscribed, "this connection is not subscribed to %s", k)
	}
	return s, nil
}

func (k subKey) String() string {
	if k.group == "" {
		return "topic " + shorten(k.topic) + " without a group"
	}
	return "topic " + shorten(k.topic) + " with group " + shorten(k.group)
}

// unsubscribe ends a subscription: what it has in flight goes back to the group
// at once, and no event follows the OK.
func (c *conn) unsubscribe(req *wire.Request) {
	s, err := c.subscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	s.Close(group.Unsubscribed)
	c.mu.Lock()
	delete(c.subs, s.subKey)
	s.pacer.used--
	c.mu.Unlock()
	c.replyOK(req)
}

// pause handles PAUSE and RESUME.
func (c *conn) pause(req *wire.Request) {
	s, err := c.subscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	if req.Op == wire.OpPause {
		s.Pause()
		c.replyOK(req)
		return
	}
	c.replyOK(req)
	s.Resume()
}

// revoked tells a client that asked for it that its partitions are gone.
func (c *conn) revoked(s *subscription) {
	if s.partitions != nil {
		c.assignment(wire.OpRevoked, s)
	}
}

func (c *conn) assignment(op string, s *subscription) {
	c.reply(func(dst []byte) []byte { return wire.AppendAssignment(dst, op, s.topic, s.group, s.partitions) })
}
