package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Subscription handles the events of one (topic, group). When its connection breaks it makes a
// new one. Events that no handler has by then are forgotten, since they are delivered again;
// handlers that run go on, and when one of their events comes again meanwhile it is not handled
// twice, but settled with the result of the handler that has it. An event whose ack was lost on the
// way is acked when it comes again.
//
// So a subscription rarely handles an event twice, but another consumer of the group may have got
// the event, too. For effects that must happen once, see package exactlyonce.
//
// A subscription without a group goes on right behind the last event that it saw of each partition:
// it hands out each event once and misses none, unless retention removes some while it has no
// connection; [option.EndOnGap] ends it then. With one handler at a time, the events of a partition
// come in the order of their seqs.
type Subscription struct {
	client       *Client
	topic, group string
	config       subscribeConfig

	base   context.Context // of the hooks
	ctx    context.Context // of handlers; ends with Stop
	cancel context.CancelFunc
	life   context.Context // ends when there is nothing more to do than to leave
	finish context.CancelFunc
	closed chan struct{}
	work   sync.WaitGroup // handlers and hooks
	keeper chan struct{}  // wakes tend; it holds one

	mu       sync.Mutex
	changed  sync.Cond         // handlers that returned, hooks that were called, Stop
	conn     *ConnSubscription // nil while there is none
	draining bool
	stopping bool
	paused   bool
	err      error // why it was refused

	dispatcher
	gathering bool // a handler's goroutine waits for a whole batch
	running   int
	bytes     int
	held      map[string]*item     // by id, with a group: in hand and not settled
	uncertain map[string]time.Time // acks that may not have arrived, until when
	lease     time.Duration        // the longest time that was left to settle
	tendAt    time.Time            // when the keeper looks again
	lone      lonePlace
	division  division
}

func newSubscription(ctx context.Context, c *Client, topic, group string, cfg subscribeConfig) *Subscription {
	s := &Subscription{
		client: c, topic: topic, group: group, config: cfg,
		base: context.WithoutCancel(ctx), closed: make(chan struct{}), keeper: make(chan struct{}, 1),
		held: map[string]*item{}, uncertain: map[string]time.Time{},
	}
	s.changed.L = &s.mu
	s.plain = group == "" && cfg.Concurrency == 1 && cfg.Batch == 0
	s.ctx, s.cancel = context.WithCancel(s.base)
	s.life, s.finish = context.WithCancel(s.base)
	return s
}

// start registers the subscription, and keeps it going from its first connection on.
func (s *Subscription) start(conn *Conn) error {
	c := s.client
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.subs[s] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		s.Stop()
	}
	go s.run(conn) // Closed tells of its end, which the client's Close waits for
	if closed {
		<-s.closed
		return ErrClosed
	}
	return nil
}

func (s *Subscription) run(conn *Conn) {
	var keeper sync.WaitGroup
	goIn(&keeper, s.keep)
	l := link{
		client: s.client, name: fmt.Sprintf("topic %s, group %q", s.topic, s.group),
		change: ConnectionChange{Topic: s.topic, Group: s.group}, serve: s.serve, ended: func() bool { return s.Err() != nil },
	}
	l.run(s.life, conn)
	s.finish()

	s.mu.Lock()
	s.stopping = true
	s.giveUp(s.drop(everything))
	for _, it := range s.held {
		if !it.running {
			s.forget(it, ErrLost)
		}
	}
	s.revokeAll()
	s.changed.Broadcast()
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
	keeper.Wait()
	s.client.mu.Lock()
	delete(s.client.subs, s)
	s.client.mu.Unlock()
	close(s.closed)
}

// join subscribes on a connection.
func (s *Subscription) join(ctx context.Context, conn *Conn) error {
	cs := &ConnSubscription{conn: conn, topic: s.topic, group: s.group}
	cs.deliver = func(deliveries []wire.Delivery) { s.deliver(cs, deliveries) }
	if s.config.Wire.Rebalance {
		cs.divide = func(op string, partitions []int) { s.divide(cs, op, partitions) }
	}
	s.mu.Lock()
	s.conn = cs
	opts := s.lone.from(s.config.Wire, s.group)
	away := s.lone.away()
	s.mu.Unlock()
	var err error
	if s.config.EndOnGap && away > longestAway {
		err = wire.Errorf(wire.OutOfRange, "the subscription had no connection for %v, and deletions of keys are kept for a day",
			away.Round(time.Second))
	} else {
		err = cs.subscribe(ctx, &opts)
	}
	if err != nil {
		s.lost(cs)
		s.mu.Lock()
		misplaced := !s.config.EndOnGap && s.lone.misplaced(err)
		s.mu.Unlock()
		if misplaced {
			s.client.config.log.Warn("a subscription cannot go on right where it was", "topic", s.topic, "error", err)
			return errMisplaced
		}
		return err
	}
	if s.config.Started != nil {
		s.config.Started(cs.positions)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group == "" {
		s.lone.started(cs.positions)
		s.lone.lost = time.Time{}
	}
	if s.paused { // by now: a Resume meanwhile has been said on this connection before
		return conn.start(cs.encode(wire.OpPause), ignoreReply(nil))
	}
	return nil
}

// serve uses a connection until it ends, or the subscription does.
func (s *Subscription) serve(ctx context.Context, conn *Conn, up func()) error {
	s.mu.Lock()
	joined := s.conn
	s.mu.Unlock()
	if joined == nil || joined.conn != conn {
		joining, cancel := context.WithTimeout(ctx, dialTimeout)
		err := s.join(joining, conn)
		cancel()
		if err != nil {
			s.refused(err)
			return err
		}
		s.mu.Lock()
		joined = s.conn
		s.mu.Unlock()
	}
	up()
	select {
	case <-conn.Done():
	case <-ctx.Done():
		s.leave(joined)
	}
	s.lost(joined)
	return nil
}

// leaveTimeout is how long a subscription tries to give back its events; the end of its connection
// gives them back, too, but counts as an attempt.
const leaveTimeout = 2 * time.Second

func (s *Subscription) leave(joined *ConnSubscription) {
	s.mu.Lock()
	s.stopping = true // nobody waits for room any more
	s.changed.Broadcast()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := joined.Unsubscribe(ctx); err != nil && !errors.Is(err, ErrClosed) {
		s.client.config.log.Warn("unsubscribing", "topic", s.topic, "group", s.group, "error", err)
	}
}

// Stop ends the subscription at once: no further handler starts, the contexts of running handlers
// end, and all unsettled events go back to the group, without counting as an attempt. It does not
// wait; Closed tells when the last handler has returned.
func (s *Subscription) Stop() {
	s.mu.Lock()
	s.stopping = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.cancel()
	s.finish()
}

// Drain ends the subscription in order: delivered events are handled and settled, and no more are
// accepted. It does not wait; Closed tells when that is done. Stop cuts it short.
func (s *Subscription) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.stopping {
		return
	}
	s.draining, s.paused = true, false
	failed := func(it *item) bool { return s.isPostponed(it) && !it.failedAt.IsZero() }
	s.giveUp(s.drop(failed)) // they go back when the subscription leaves
	if conn := s.conn; conn != nil {
		_ = conn.conn.start(conn.encode(wire.OpPause), ignoreReply(nil)) // later events go back
	}
	s.spawn(0)
	s.checkDrained()
}

// checkDrained ends a subscription that drains and has nothing more in hand.
func (s *Subscription) checkDrained() {
	if s.draining && s.running == 0 && s.waiting == 0 && len(s.held) == 0 {
		s.finish()
	}
}

// Closed is closed when the subscription has ended, no handler runs and the last hook has returned.
func (s *Subscription) Closed() <-chan struct{} { return s.closed }

// Err is why the subscription ended by itself: the [*Error] with which the sidecar refused it for
// good, after a connection was lost. It is nil while the subscription goes on, and after Stop,
// Drain and the client's Close.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// refused notes a refusal that another try would not change. An invalid token is no such refusal:
// the next token may be valid.
func (s *Subscription) refused(err error) {
	refusal, ok := asType[*wire.Error](err)
	if !ok {
		return
	}
	switch refusal.Code {
	case wire.BadRequest, wire.Forbidden, wire.NotFound, wire.OutOfRange:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = refusal
		s.client.config.log.Error("a subscription has ended: the sidecar refuses it", "topic", s.topic, "group", s.group, "error", err)
	}
}

// Pause lets no further handler start until Resume. Running handlers go on. Delivered events wait,
// with their deadlines extended.
func (s *Subscription) Pause() { s.setPaused(true, wire.OpPause) }

// Resume ends a Pause.
func (s *Subscription) Resume() { s.setPaused(false, wire.OpResume) }

func (s *Subscription) setPaused(paused bool, op string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == paused || s.draining || s.stopping {
		return
	}
	s.paused = paused
	if conn := s.conn; conn != nil {
		_ = conn.conn.start(conn.encode(op), ignoreReply(nil)) // a new connection is told when it joins
	}
	s.spawn(0)
}
