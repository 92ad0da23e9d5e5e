package ws

import (
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// subscription is a connection's side of one subscription. It is the group's sink.
type subscription struct {
	session.SubscriptionKey
	session.Feed
	conn       *conn
	maxBatch   int
	autoAck    bool
	form       codec.Form
	member     *group.Member // nil without a group
	starts     []uint64      // nil with a group
	release    func()        // releases the connection's delivery bucket
	partitions []int         // partitions that the client knows as its own
}

// Assigned tells the client that partitions are its own.
func (s *subscription) Assigned(partitions []int) {
	s.partitions = append(s.partitions, partitions...)
	s.tell(wire.OpAssigned, partitions)
}

// Revoked tells the client that partitions are not its own any more.
func (s *subscription) Revoked(partitions []int) {
	s.partitions = slices.DeleteFunc(s.partitions, func(p int) bool { return slices.Contains(partitions, p) })
	s.tell(wire.OpRevoked, partitions)
}

func (s *subscription) tell(op string, partitions []int) {
	s.conn.reply(func(dst []byte) []byte { return codec.AppendAssignment(dst, op, s.Topic, s.Group, partitions) })
}

// subscribe adds a subscription. Its OK is in the send buffer before the first event.
func (c *conn) subscribe(req *codec.Request) {
	s, err := c.addSubscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	if err := c.stillMay(); err != nil {
		c.replyError(req, err)
		return
	}
	if s.member == nil {
		c.note(c.caller.Identity(), req, nil)
		positions := make(map[int]uint64)
		for p, start := range s.starts {
			positions[p] = start - 1
		}
		c.reply(func(dst []byte) []byte { return codec.AppendSubscribed(dst, positions, req.Corr, req.HasCorr) })
	} else {
		c.replyOK(req)
	}
	s.Start()
}

// addSubscription makes a subscription without starting it. Only the reader adds and removes
// subscriptions, so a subscription that the reader has looked up stays, except after a shutdown or
// a loss of rights.
func (c *conn) addSubscription(req *codec.Request) (*subscription, error) {
	key := session.SubscriptionKey{Topic: req.Topic, Group: req.Group}
	s := &subscription{
		SubscriptionKey: key, conn: c, maxBatch: 1, autoAck: req.Subscribe.AutoAck, form: cloudevent.Form(req.Subscribe.Format),
	}
	if n := req.Subscribe.MaxBatch; n != nil {
		s.maxBatch = *n
	}
	c.mu.Lock()
	_, twice := c.subs[s.SubscriptionKey]
	full := len(c.subs) >= c.cfg.Bounds.Subscriptions
	c.mu.Unlock()
	if twice {
		return nil, wire.Errorf(wire.AlreadySubscribed, "this connection is subscribed to %s already", s.SubscriptionKey)
	}
	if full {
		return nil, wire.Errorf(wire.BadRequest, "this connection has %d subscriptions, the most that one may have: open another connection",
			c.cfg.Bounds.Subscriptions)
	}
	err := s.join(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.ending != nil {
		s.Close(group.Unsubscribed)
		err = c.ending
	}
	if err != nil {
		s.release()
		return nil, err
	}
	if c.subs == nil {
		c.subs = make(map[session.SubscriptionKey]*subscription)
	}
	c.subs[s.SubscriptionKey] = s
	return s, nil
}

// join subscribes with the group, or alone.
func (s *subscription) join(req *codec.Request) (err error) {
	c := s.conn
	asked := group.Subscription{
		Topic: s.Topic, Group: s.Group, Options: req.Subscribe, Sink: s, MemberID: c.name, Address: c.caller.From, Memory: c.caller.Share(),
	}
	asked.Pacer, s.release = c.caller.Pacer(s.Topic)
	s.Feed, s.member, s.starts, err = session.Join(c.caller.Attribute(c.ctx), c.cfg.Groups, asked)
	return err
}

// subscription finds the subscription that the request names.
func (c *conn) subscription(req *codec.Request) (*subscription, error) {
	k := session.SubscriptionKey{Topic: req.Topic, Group: req.Group}
	c.mu.Lock()
	s := c.subs[k]
	c.mu.Unlock()
	if s == nil {
		return nil, wire.Errorf(wire.NotSubscribed, "this connection is not subscribed to %s", k)
	}
	return s, nil
}

// unsubscribe ends a subscription: its events in flight go back to the group at once, and no event
// follows the OK.
func (c *conn) unsubscribe(req *codec.Request) {
	s, err := c.subscription(req)
	if err != nil {
		c.replyError(req, err)
		return
	}
	s.Close(group.Unsubscribed)
	c.mu.Lock()
	_, stayed := c.subs[s.SubscriptionKey]
	delete(c.subs, s.SubscriptionKey)
	c.mu.Unlock()
	s.release()
	if !stayed { // the connection's end was first, and is noted
		c.answerOK(req)
		return
	}
	c.replyOK(req)
}

// pause handles PAUSE and RESUME.
func (c *conn) pause(req *codec.Request) {
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

// revoked tells the client of a closed subscription that its partitions are revoked.
func (c *conn) revoked(s *subscription) {
	if len(s.partitions) > 0 {
		slices.Sort(s.partitions)
		s.Revoked(slices.Clone(s.partitions))
	}
}
