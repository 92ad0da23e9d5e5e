package sluice

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type subKey struct{ topic, group string }

// A ConnSubscription is one (topic, group) of a connection. Its methods may be called by several
// goroutines at once; those whose names end in Async do not wait, and may be called by callbacks,
// too.
//
// The Async methods call done, which may be nil, with what the others return; where they return an
// error themselves, nothing was sent and done is never called. Their queue has no bound of its own:
// there are never more events to settle than the subscription's window.
type ConnSubscription struct {
	conn         *Conn
	topic, group string
	deliver      func([]wire.Delivery)
	positions    map[int]uint64                    // that it started behind, without a group; nil: not known
	divide       func(op string, partitions []int) // gets ASSIGNED and REVOKED; nil: nobody asked for them
}

// Subscribe subscribes to a topic and waits for the answer. With a group, events are to be settled;
// without one ("") this connection alone gets every event. A nil opts leaves everything to the
// topic's policy.
//
// deliver gets the events, in the order in which they come, one call at a time, on the connection's
// reading goroutine (see [Conn]); it may be called before Subscribe returns. While it runs nothing
// is read: the socket slows the sidecar down. deliver may keep the deliveries.
//
// When ctx ends first, the connection may or may not be subscribed: close it.
func (c *Conn) Subscribe(ctx context.Context, topic, group string, opts *wire.SubscribeOptions,
	deliver func([]wire.Delivery)) (*ConnSubscription, error) {
	if deliver == nil {
		return nil, fmt.Errorf("%w: the callback of a subscription", ErrNil)
	}
	s := &ConnSubscription{conn: c, topic: topic, group: group, deliver: deliver}
	if err := s.subscribe(ctx, opts); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *ConnSubscription) subscribe(ctx context.Context, opts *wire.SubscribeOptions) error {
	c, topic, group := s.conn, s.topic, s.group
	key := subKey{topic, group}
	w := newWaiter[*codec.Reply]()
	c.mu.Lock()
	if c.subs[key] != nil {
		c.mu.Unlock()
		return wire.Errorf(wire.AlreadySubscribed, "this connection is subscribed to topic %q with group %q", topic, group)
	}
	err := c.startLocked(
		func(dst []byte, corr string) []byte { return codec.AppendSubscribe(dst, corr, topic, group, opts) },
		func(r *codec.Reply, err error) {
			if err != nil {
				s.forget()
			} else {
				s.positions = r.Positions
			}
			w.done(r, err)
		})
	if err == nil {
		c.subs[key] = s // events follow the answer at once
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = w.wait(ctx)
	return err
}

func (s *ConnSubscription) forget() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	delete(s.conn.subs, subKey{s.topic, s.group})
}

// Unsubscribe ends the subscription: unsettled events go back to the group at once. Deliveries may
// come until it returns.
func (s *ConnSubscription) Unsubscribe(ctx context.Context) error {
	w := newWaiter[*codec.Reply]()
	err := s.conn.start(s.encode(wire.OpUnsubscribe), func(r *codec.Reply, err error) {
		if err == nil {
			s.forget()
		}
		w.done(r, err)
	})
	if err != nil {
		return err
	}
	_, err = w.wait(ctx)
	return err
}

// Pause stops deliveries. Events in flight can still be settled, and their deadlines still run.
func (s *ConnSubscription) Pause(ctx context.Context) error {
	_, err := s.conn.wait(ctx, s.encode(wire.OpPause))
	return err
}

// Resume lets deliveries come again.
func (s *ConnSubscription) Resume(ctx context.Context) error {
	_, err := s.conn.wait(ctx, s.encode(wire.OpResume))
	return err
}

func (s *ConnSubscription) encode(op string) encoder {
	return func(dst []byte, corr string) []byte {
		return codec.AppendOnSubscription(dst, op, corr, s.topic, s.group)
	}
}

// Ack settles events and returns once that is durable.
func (s *ConnSubscription) Ack(ctx context.Context, ids ...string) error {
	w := newWaiter[struct{}]()
	if err := s.AckAsync(func(err error) { w.done(struct{}{}, err) }, ids...); err != nil {
		return err
	}
	_, err := w.wait(ctx)
	return err
}

// AckAsync is Ack without waiting. Acks that follow one another before they are written share a frame.
func (s *ConnSubscription) AckAsync(done func(error), ids ...string) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.acks; a.takes(s, ids) {
		a.add(ids, done)
		c.queue.bytes = codec.AppendToAck(c.queue.bytes, ids...)
		c.queue.ends[len(c.queue.ends)-1] = len(c.queue.bytes)
		return nil
	}
	a := newAcks(s, ids)
	a.add(ids, done)
	encode := func(dst []byte, corr string) []byte { return codec.AppendAck(dst, corr, s.topic, s.group, ids...) }
	if err := c.startLocked(encode, a.answered); err != nil {
		return err
	}
	c.acks = a
	return nil
}

// Nack has the fields of a NACK other than the ids.
type Nack = wire.Nack

// Nack gives events back, to be delivered again.
func (s *ConnSubscription) Nack(ctx context.Context, n Nack, ids ...string) error {
	_, err := s.conn.wait(ctx, s.nack(n, ids))
	return err
}

// NackAsync is Nack without waiting.
func (s *ConnSubscription) NackAsync(done func(error), n Nack, ids ...string) error {
	return s.conn.start(s.nack(n, ids), ignoreReply(done))
}

func (s *ConnSubscription) nack(n Nack, ids []string) encoder {
	return func(dst []byte, corr string) []byte {
		return codec.AppendNack(dst, corr, s.topic, s.group, ids, n)
	}
}

// ModAck moves the deadline of events to extendMS milliseconds from now.
func (s *ConnSubscription) ModAck(ctx context.Context, extendMS int64, ids ...string) error {
	_, err := s.conn.wait(ctx, s.modAck(extendMS, ids))
	return err
}

// ModAckAsync is ModAck without waiting.
func (s *ConnSubscription) ModAckAsync(done func(error), extendMS int64, ids ...string) error {
	return s.conn.start(s.modAck(extendMS, ids), ignoreReply(done))
}

func (s *ConnSubscription) modAck(extendMS int64, ids []string) encoder {
	return func(dst []byte, corr string) []byte {
		return codec.AppendModAck(dst, corr, s.topic, s.group, ids, extendMS)
	}
}

func ignoreReply(done func(error)) func(*codec.Reply, error) {
	return func(_ *codec.Reply, err error) {
		if done != nil {
			done(err)
		}
	}
}
