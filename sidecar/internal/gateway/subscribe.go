package gateway

import (
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/follower"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// feed delivers events to a subscription, with or without a group.
type feed interface {
	Start()
	Wake()
	Pause()
	Resume()
	Close(how group.Leaving)
}

// alone is a subscription without a group.
type alone struct{ *follower.Follower }

// Close ends the subscription; it has no events to give back.
func (a alone) Close(group.Leaving) { a.Follower.Close() }

// subscription is a connection's side of one subscription. It is the group's sink.
type subscription struct {
	subKey
	feed
	conn       *conn
	maxBatch   int
	autoAck    bool
	member     *group.Member // nil without a group
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
	s.conn.reply(func(dst []byte) []byte { return codec.AppendAssignment(dst, op, s.topic, s.group, partitions) })
}

// subscribe adds a subscription. Its OK is in the send buffer before the first event.
func (c *conn) subscribe(req *codec.Request) {
	s, err := c.addSubscription(req)
	c.caller.Note(audit.Subscribe, req.Topic, req.Group, err)
	if err != nil {
		c.replyError(req, err)
		return
	}
	if err := c.stillMay(); err != nil {
		c.replyError(req, err)
		return
	}
	if f, is := s.feed.(alone); is {
		positions := make(map[int]uint64)
		for p, start := range f.Starts() {
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
	s := &subscription{subKey: subKey{req.Topic, req.Group}, conn: c, maxBatch: 1, autoAck: req.Subscribe.AutoAck}
	if n := req.Subscribe.MaxBatch; n != nil {
		s.maxBatch = *n
	}
	c.mu.Lock()
	_, twice := c.subs[s.subKey]
	full := len(c.subs) >= c.cfg.Bounds.Subscriptions
	c.mu.Unlock()
	if twice {
		return nil, wire.Errorf(wire.AlreadySubscribed, "this connection is subscribed to %s already", s.subKey)
	}
	if full {
		return nil, wire.Errorf(wire.BadRequest, "this connection has %d subscriptions, and no more are allowed on one connection", c.cfg.Bounds.Subscriptions)
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
		return nil, refusal.Of(err)
	}
	if c.subs == nil {
		c.subs = make(map[subKey]*subscription)
	}
	c.subs[s.subKey] = s
	return s, nil
}

// join subscribes with the group, or alone.
func (s *subscription) join(req *codec.Request) error {
	c := s.conn
	asked := group.Subscription{Topic: s.topic, Group: s.group, Options: req.Subscribe, Sink: s, MemberID: c.name}
	asked.Pacer, s.release = c.caller.Pacer(s.topic)
	ctx := c.caller.Attribute(c.ctx)
	if s.group == "" {
		f, err := c.cfg.Groups.Follow(ctx, asked)
		s.feed = alone{f}
		return err
	}
	m, err := c.cfg.Groups.Subscribe(ctx, asked)
	if err != nil {
		return err
	}
	s.feed, s.member = m, m
	return nil
}

// subscription finds the subscription that the request names.
func (c *conn) subscription(req *codec.Request) (*subscription, error) {
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
		return "topic " + refusal.Shorten(k.topic) + " without a group"
	}
	return "topic " + refusal.Shorten(k.topic) + " with group " + refusal.Shorten(k.group)
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
	delete(c.subs, s.subKey)
	c.mu.Unlock()
	s.release()
	c.caller.Note(audit.Unsubscribe, s.topic, s.group, nil)
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
