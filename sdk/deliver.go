package sluice

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// deliver takes deliveries from a connection's reader, and keeps it waiting while there is no room
// for more.
func (s *Subscription) deliver(conn *ConnSubscription, deliveries []wire.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range deliveries {
		if s.conn == conn {
			s.receive(conn, &deliveries[i], now)
		}
	}
	s.spawn(0)
	for s.full() && s.conn == conn && !s.stopping {
		s.changed.Wait()
	}
}

func (s *Subscription) full() bool {
	return s.bytes > s.config.MaxBytes || s.group == "" && s.waiting >= loneWindow
}

// receive handles one delivery from the sidecar.
func (s *Subscription) receive(conn *ConnSubscription, d *wire.Delivery, now time.Time) {
	id := d.Event.ID
	if s.group == "" {
		if s.lone.pass(&d.Event, now) && !s.draining && !s.stopping {
			s.accept(newItem(s, conn, d, now))
		}
		return
	}
	lease := time.Duration(d.AckDeadlineMS) * time.Millisecond
	s.lease = max(s.lease, lease)
	if it := s.held[id]; it != nil && it.decided && !it.ack {
		s.forget(it, nil) // it was given back, and is here before the answer that says so
	}
	if it := s.held[id]; it != nil && it.returned && !it.decided && now.Sub(it.since) >= s.config.MaxExtension {
		s.forget(it, ErrLost) // its time was over: it is handed out again, as it would be elsewhere
	}
	if it := s.held[id]; it != nil { // it comes again while a handler has it
		it.conn, it.confirmed, it.extendAt = conn, now, now.Add(lease/2)
		s.tendBy(it.extendAt)
		if it.decided {
			s.send(it)
		}
		return
	}
	it := newItem(s, conn, d, now)
	it.extendAt = now.Add(lease / 2)
	if until, ok := s.uncertain[id]; ok && now.Before(until) {
		delete(s.uncertain, id)
		s.held[id] = it
		s.decide(it, true, Nack{})
		return
	}
	if s.draining || s.stopping {
		return // it goes back when the subscription leaves
	}
	s.held[id] = it
	s.tendBy(it.extendAt)
	s.accept(it)
}

func newItem(s *Subscription, conn *ConnSubscription, d *wire.Delivery, now time.Time) *item {
	it := &item{size: d.Event.Size(), conn: conn, since: now, confirmed: now, settled: make(chan struct{})}
	it.message = Message{Event: d.Event, Attempt: d.Attempt, of: s, item: it}
	return it
}

func (s *Subscription) accept(it *item) {
	s.bytes += it.size
	if s.division.shuts(s.config.Wire.Rebalance, it) {
		s.waiting++
		return
	}
	s.place(it)
}

// spawn starts as many handlers as may run, for the ready items that no handler takes anyway.
func (s *Subscription) spawn(taken int) {
	batch := max(s.config.Batch, 1)
	ready := len(s.ready) - taken*batch
	if s.gathering {
		s.changed.Broadcast()
		ready -= batch
	}
	for ; ready > 0 && s.running < s.config.Concurrency && !s.paused && !s.stopping; ready -= batch {
		s.running++
		goIn(&s.work, s.handle)
	}
}

// handle handles events until there is none to handle. It holds no lock while it calls the
// application's functions.
func (s *Subscription) handle() {
	var batch []*item
	s.mu.Lock()
	for !s.paused && !s.stopping && s.gather() {
		batch = batch[:0]
		for it := s.next(); it != nil; it = s.next() {
			if s.confirmFirst(it) {
				continue
			}
			if batch = append(batch, it); len(batch) >= s.config.Batch {
				break
			}
		}
		if len(batch) == 0 {
			break
		}
		ctx, cancel := context.WithCancelCause(s.ctx)
		for _, it := range batch {
			it.running, it.cancel = true, cancel
			s.division.enter(it.message.Event.Partition)
		}
		s.spawn(0)
		s.mu.Unlock()
		err := s.call(ctx, batch)
		cancel(nil)
		s.mu.Lock()
		for i, it := range batch {
			s.division.leave(it.message.Event.Partition)
			if s.config.batchHandler == nil {
				s.handled(it, err)
			} else {
				s.handled(it, err.(BatchErrors)[i])
			}
		}
	}
	s.running--
	s.changed.Broadcast()
	s.checkDrained()
	s.mu.Unlock()
}

// call calls the handler. For a batch it returns BatchErrors.
func (s *Subscription) call(ctx context.Context, batch []*item) error {
	o, first := &s.client.config.observer, &batch[0].message
	began := time.Now()
	if o.Delivered != nil {
		for _, it := range batch {
			o.Delivered(s.topic, s.group, it.message.Attempt, began.Sub(it.since))
		}
	}
	if s.config.batchHandler == nil {
		err := s.config.handler(s.client.tracing(ctx, first.Event.Headers), first)
		if o.Handled != nil {
			o.Handled(s.topic, s.group, time.Since(began), err)
		}
		return err
	}
	messages := make([]*Message, len(batch))
	for i, it := range batch {
		messages[i] = &it.message
	}
	errs := each(s.config.batchHandler(ctx, messages), len(batch))
	if o.Handled != nil {
		took := time.Since(began)
		for _, err := range errs {
			o.Handled(s.topic, s.group, took, err)
		}
	}
	return errs
}

// handled settles an event as its handler said.
func (s *Subscription) handled(it *item, err error) {
	it.running = false
	if wait, again := s.retryInHand(it, err); again {
		if retried := s.client.config.observer.Retried; retried != nil {
			s.mu.Unlock()
			retried(s.topic, s.group, wait, err)
			s.mu.Lock()
		}
		s.spawn(1)
		s.changed.Broadcast()
		return
	}
	it.returned = true
	s.bytes -= it.size
	s.release(it)
	s.spawn(1) // the caller takes one
	s.changed.Broadcast()
	switch {
	case s.group == "":
	case err == nil && s.config.Manual:
		if it.conn == nil && !it.decided {
			s.forget(it, ErrLost)
		}
	case err == nil:
		s.decide(it, true, Nack{})
	case s.draining && isPlain(err) && !it.decided:
		s.forget(it, ErrLost) // it goes back when the subscription leaves, which counts no attempt
	default:
		s.decide(it, false, nackFor(err))
	}
}

// Pauses before a handler is called again for the same event: they double from the first to the
// last.
const (
	firstRetryPause = 100 * time.Millisecond
	lastRetryPause  = 5 * time.Second
)

// retryInHand calls an event's handler again after a pause, unless the error decides about the
// event, or the handler has failed for too long. The event stays with this subscription: no attempt
// is counted, its deadline is extended, later events of its key wait, and others are handled
// meanwhile.
func (s *Subscription) retryInHand(it *item, err error) (wait time.Duration, again bool) {
	decides := err == nil || !isPlain(err) || s.group == ""
	left := it.decided || it.gone || it.conn == nil
	if decides || left || s.draining || s.stopping {
		return 0, false
	}
	first := it.failedAt.IsZero()
	if first {
		it.failedAt = time.Now()
		it.retries = pause.Backoff{First: firstRetryPause, Most: lastRetryPause}
	}
	wait = it.retries.Step()
	if time.Since(it.failedAt)+wait > s.config.retryFor {
		return 0, false
	}
	if first {
		s.client.config.log.Warn("a handler failed, and is called again", "topic", s.topic, "group", s.group, "id",
			it.message.Event.ID, "error", err)
	}
	s.postpone(it, time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.confirm(it)
	}))
	return wait, true
}

// confirmedFor is how long no handler has to ask whether an item is still this subscription's. A
// sidecar that moves a partition waits longer for its events, and does not tell each client.
const confirmedFor = time.Second

// confirmFirst postpones an item that waited long for its handler until it is confirmed.
func (s *Subscription) confirmFirst(it *item) bool {
	if s.group == "" || s.lease == 0 || time.Since(it.confirmed) < confirmedFor {
		return false
	}
	s.postpone(it, nil)
	s.confirm(it)
	return true
}

// confirm makes a postponed item ready again once the sidecar has said that it is still this
// subscription's.
func (s *Subscription) confirm(it *item) {
	resume := func() {
		if s.resume(it) {
			s.spawn(0)
		}
	}
	switch {
	case !s.isPostponed(it): // it was dropped meanwhile
	case s.lease == 0: // it has no deadline
		resume()
	default:
		it.extendAt = time.Now().Add(s.lease / 2)
		s.extend(it.conn, []string{it.message.Event.ID}, resume)
	}
}

// extend moves the deadlines of items, and abandons those that are not this subscription's any
// more. Where none of them is lost, it calls done, which may be nil, with the lock held.
func (s *Subscription) extend(conn *ConnSubscription, ids []string, done func()) {
	answered := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, refused := asType[*wire.Error](err)
		switch {
		case s.conn != conn:
		case err == nil:
			for _, id := range ids {
				if it := s.held[id]; it != nil {
					it.confirmed = time.Now()
				}
			}
			if done != nil {
				done()
			}
		case refused && len(ids) == 1:
			s.abandon(func(it *item) bool { return it.message.Event.ID == ids[0] }, ErrRevoked)
		case refused: // it names one, and the others have their new deadline
			for i := range ids {
				s.extend(conn, ids[i:i+1], nil)
			}
		}
	}
	_ = conn.ModAckAsync(answered, max(s.lease.Milliseconds(), 1), ids...) // a broken connection gives them back
}

// endPostponed calls no handler for a postponed item any more.
func (s *Subscription) endPostponed(it *item) {
	if s.cancelPostponed(it) {
		s.bytes -= it.size
		s.spawn(0)
		s.changed.Broadcast()
	}
}

// isPlain reports whether an error is not one of RetryIn, Hold or DeadLetter.
func isPlain(err error) bool {
	_, as := asType[*nackAs](err)
	return !as
}

// nackFor is the NACK that goes with a handler's error.
func nackFor(err error) Nack {
	var n Nack
	if as, ok := asType[*nackAs](err); ok {
		n = as.nack
	}
	n.Reason = clip(err.Error())
	return n
}

// clip shortens a text to what fits a NACK's reason.
func clip(text string) string {
	if len(text) <= wire.MaxReasonBytes {
		return text
	}
	cut := wire.MaxReasonBytes
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// lost notes that a connection is gone, and with it the leases of its events.
func (s *Subscription) lost(conn *ConnSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != conn {
		return
	}
	s.conn = nil
	s.changed.Broadcast()
	if s.group == "" {
		if s.lone.lost.IsZero() {
			s.lone.lost = time.Now().Round(0) // by the wall clock, which does not stop when the machine sleeps
		}
		return // the received event is to be handled all the same
	}
	s.revokeAll()
	s.abandon(everything, ErrLost)
}

func everything(*item) bool { return true }

// abandon ends the part of this subscription in the items that the function selects, because they
// are delivered again, maybe to another consumer. No handler is called for them any more, the
// contexts of handlers that run end, and nothing is settled.
func (s *Subscription) abandon(which func(*item) bool, cause error) {
	s.giveUp(s.drop(which))
	for _, it := range s.held {
		if !which(it) {
			continue
		}
		if it.running {
			it.conn = nil
			it.cancel(cause)
		}
		switch {
		case it.decided:
			s.forgetUncertain(it)
		case !it.running: // it waits for a settlement by hand
			s.forget(it, cause)
		}
	}
}

// giveUp forgets items that no handler had.
func (s *Subscription) giveUp(items []*item) {
	for _, it := range items {
		s.bytes -= it.size
		s.forget(it, ErrLost)
	}
	s.changed.Broadcast()
}

// keep extends deadlines, and sends settlements again, until the subscription leaves.
func (s *Subscription) keep() {
	timer := time.NewTimer(farAway)
	defer timer.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-timer.C:
		case <-s.keeper:
		}
		s.mu.Lock()
		now := time.Now()
		if !now.Before(s.tendAt) {
			s.tend(now)
		}
		wait := farAway
		if !s.tendAt.IsZero() {
			wait = s.tendAt.Sub(now)
		}
		s.mu.Unlock()
		timer.Reset(max(wait, 0))
	}
}

// tendBy makes the keeper look at that time, if not before.
func (s *Subscription) tendBy(at time.Time) {
	if !s.tendAt.IsZero() && !at.Before(s.tendAt) {
		return
	}
	s.tendAt = at
	select {
	case s.keeper <- struct{}{}:
	default:
	}
}

// tend does what is due, and sets tendAt. Items that are due soon are handled now, so that it looks
// a few times in a deadline and not once for each event.
func (s *Subscription) tend(now time.Time) {
	s.tendAt = time.Time{}
	soon := now.Add(s.lease / 10)
	var extend []string
	later := func(at time.Time) {
		if s.tendAt.IsZero() || at.Before(s.tendAt) {
			s.tendAt = at
		}
	}
	for id, it := range s.held {
		if it.conn == nil || it.conn != s.conn {
			continue
		}
		if !it.retryAt.IsZero() {
			if it.retryAt.After(now) {
				later(it.retryAt)
			} else {
				it.retryAt = time.Time{}
				s.send(it)
			}
		}
		if it.gone || s.lease == 0 || now.Sub(it.since) >= s.config.MaxExtension {
			continue
		}
		if !it.extendAt.After(soon) {
			extend = append(extend, id)
			it.extendAt = now.Add(s.lease / 2)
		}
		later(it.extendAt)
	}
	for len(extend) > 0 && s.conn != nil {
		n := min(len(extend), wire.MaxSettleIDs)
		s.extend(s.conn, extend[:n], nil)
		extend = extend[n:]
	}
	for id, until := range s.uncertain {
		if now.After(until) {
			delete(s.uncertain, id)
		}
	}
}
