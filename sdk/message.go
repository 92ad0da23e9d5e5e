package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Message is one event with a handler. The handler may keep the event, which is not shared.
type Message struct {
	Event Event
	// Attempt counts the deliveries of the event, from 1.
	Attempt int

	of   *Subscription
	item *item
}

// ErrLost is matched by the error of settling a message whose connection broke meanwhile: it is
// delivered again, unless the settlement had arrived.
var ErrLost = fmt.Errorf("%w: the event is delivered again", ErrClosed)

// ErrRevoked is the cause of a handler's context that ended because the event's partition is
// another consumer's by now. It matches [ErrLost].
var ErrRevoked = fmt.Errorf("%w: its partition was revoked", ErrLost)

var errNoGroup = errors.New("sluice: without a group nothing is delivered again")

// Ack settles the event and returns once that is durable. If a message is settled several times,
// the first settlement counts, and all calls return its result. An error that matches [ErrLost]
// means that the event is delivered again, or was acked after all.
func (m *Message) Ack(ctx context.Context) error { return m.settle(ctx, true, Nack{}) }

// Nack gives the event back, to be delivered again.
func (m *Message) Nack(ctx context.Context, n Nack) error { return m.settle(ctx, false, n) }

func (m *Message) settle(ctx context.Context, ack bool, n Nack) error {
	s, it := m.of, m.item
	if s.group == "" {
		if ack {
			return nil // its delivery has settled it
		}
		return errNoGroup
	}
	s.mu.Lock()
	s.decide(it, ack, n)
	s.mu.Unlock()
	select {
	case <-it.settled:
		return it.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Extend moves the event's deadline to d from now. While a handler runs, the client extends the
// deadline itself; Extend is for more time than [option.MaxExtension] gives. The code unknown_id
// means that the event is another consumer's by now.
func (m *Message) Extend(ctx context.Context, d time.Duration) error {
	s, it := m.of, m.item
	if s.group == "" {
		return errNoGroup
	}
	s.mu.Lock()
	conn := it.conn
	if conn != nil {
		it.extendAt = time.Now().Add(max(d/2, d-s.lease/2))
	}
	s.mu.Unlock()
	if conn == nil {
		return ErrLost
	}
	return conn.ModAck(ctx, max(d.Milliseconds(), 1), m.Event.ID)
}

// item is a message on its way through the subscription, guarded by its lock.
type item struct {
	message  Message
	size     int
	conn     *ConnSubscription       // that delivered it last; nil: that is gone
	running  bool                    // a handler has it
	cancel   context.CancelCauseFunc // of that handler's context
	returned bool                    // a handler had it

	decided bool // how it is settled: ack, or nack
	ack     bool
	nack    Nack
	gone    bool          // nothing is left to settle
	settled chan struct{} // closed when it is gone
	err     error         // of the settlement; written before settled is closed

	failedAt time.Time     // the first time that a handler failed
	retries  pause.Backoff // until it is called again
	since    time.Time     // it is with this subscription
	// confirmed is when it was certainly this subscription's: delivered, or its deadline extended.
	confirmed time.Time
	extendAt  time.Time
	retryAt   time.Time // its settlement is sent again
}

// decide decides how an item is settled, unless that was decided before.
func (s *Subscription) decide(it *item, ack bool, n Nack) {
	if it.decided || it.gone {
		return
	}
	it.decided, it.ack, it.nack = true, ack, n
	s.endPostponed(it)
	s.send(it)
}

// send sends the settlement of an item.
func (s *Subscription) send(it *item) {
	conn := it.conn
	if conn == nil || conn != s.conn || s.stopping {
		s.forgetUncertain(it)
		return
	}
	var err error
	done := func(err error) { s.answered(it, conn, err) }
	if settled := s.client.config.observer.Settled; settled != nil {
		began, ack := time.Now(), it.ack
		done = func(err error) {
			settled(s.topic, s.group, ack, time.Since(began), err)
			s.answered(it, conn, err)
		}
	}
	if it.ack {
		err = conn.AckAsync(done, it.message.Event.ID)
	} else {
		err = conn.NackAsync(done, it.nack, it.message.Event.ID)
	}
	if err != nil {
		s.forgetUncertain(it)
	}
}

// answered takes the answer to a settlement.
func (s *Subscription) answered(it *item, conn *ConnSubscription, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.gone || it.conn != conn {
		return
	}
	refusal, refused := asType[*wire.Error](err)
	switch after, again := worthRetrying(err); {
	case err == nil:
		s.forget(it, nil)
	case !refused:
		s.forgetUncertain(it)
	case again:
		it.retryAt = time.Now().Add(after)
		s.tendBy(it.retryAt)
	default:
		s.client.config.log.Warn("an event could not be settled", "topic", s.topic, "group", s.group,
			"id", it.message.Event.ID, "error", refusal)
		s.forget(it, refusal)
	}
}

// uncertainFor is how long the client remembers an ack that may not have arrived. It is short:
// during that time the client also acks, without handling it, an event that is delivered again on
// purpose, after the group's cursor was set back.
const uncertainFor = 2 * time.Minute

// maxUncertain bounds these acks.
const maxUncertain = 10_000

// forgetUncertain ends an item whose settlement may not arrive. Where it is an ack, the event is
// acked when it comes again, instead of handled twice.
func (s *Subscription) forgetUncertain(it *item) {
	if it.ack && !s.stopping && len(s.uncertain) < maxUncertain {
		s.uncertain[it.message.Event.ID] = time.Now().Add(uncertainFor)
	}
	s.forget(it, ErrLost)
}

// forget ends an item.
func (s *Subscription) forget(it *item, err error) {
	if it.gone {
		return
	}
	it.gone, it.err = true, err
	s.endPostponed(it)
	close(it.settled)
	if id := it.message.Event.ID; s.held[id] == it {
		delete(s.held, id)
	}
	s.checkDrained()
}
