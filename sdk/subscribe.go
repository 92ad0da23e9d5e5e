package sluice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Handler handles one event. When it returns nil the event is acked. When it
// returns an error it is called again for the same event after a pause, for up
// to [RetryFor]; that counts no attempt, and later events of the key wait. Only
// then the event is given back, to be delivered again after the policy's
// backoff, and after maxAttempts moved to the dead-letter topic with the error's
// text as the reason. [RetryIn], [Hold] and [DeadLetter] wrap errors that say
// more. A handler that settled its message itself, with [Message.Ack] or
// [Message.Nack], has said it all.
//
// The context ends with [Subscription.Stop]; with the cause [ErrLost] when the
// connection is lost, for then the event is delivered again; and with
// [ErrRevoked] when its partition is another consumer's, where [OnAssigned] or
// [OnRevoked] ask for partitions. It carries the values of the context given to
// Subscribe, and what [WithPropagator] extracts.
type Handler func(ctx context.Context, m *Message) error

// A SubscribeOption sets something of a [Subscription]. What is not set is the
// topic's policy's.
type SubscribeOption func(*subscribeConfig)

type subscribeConfig struct {
	handler      Handler
	batchHandler BatchHandler // nil: handler is called for each event
	wire         wire.SubscribeOptions
	concurrency  int
	manual       bool
	maxExtension time.Duration
	retryFor     time.Duration
	maxBytes     int
	batch        int // 0: events are handled one by one
	batchWait    time.Duration
	assigned     func(ctx context.Context, partitions []int)
	revoked      func(ctx context.Context, partitions []int)
}

const (
	defaultMaxExtension = time.Hour
	defaultRetryFor     = 5 * time.Minute
	defaultHeldBytes    = 64 << 20
	// deliverBatch is the most events of one frame.
	deliverBatch = 100
	// loneWindow is the most events that a subscription without a group holds;
	// with a group the sidecar counts.
	loneWindow = 1000
)

// FromEarliest starts at the topic's first event, while the group has no place
// in the topic. Without an option it starts with what is published from now on.
func FromEarliest() SubscribeOption {
	return func(c *subscribeConfig) { c.wire.From = wire.FromEarliest }
}

// FromTime starts at the first event of that time or later, while the group has
// no place in the topic.
func FromTime(t time.Time) SubscribeOption {
	ms := t.UnixMilli()
	return func(c *subscribeConfig) { c.wire.From, c.wire.TS = wire.FromTS, &ms }
}

// AfterID starts behind the event with that id, while the group has no place in
// the topic.
func AfterID(id string) SubscribeOption {
	return func(c *subscribeConfig) { c.wire.From, c.wire.AfterID = wire.FromAfterID, id }
}

// FromPositions starts right behind these seqs of the topic's partitions, and
// with the first event of partitions that are not named, while the group has no
// place in the topic. Where retention has removed the event behind one the
// subscription is refused with the code out_of_range.
func FromPositions(positions map[int]uint64) SubscribeOption {
	positions = maps.Clone(positions)
	return func(c *subscribeConfig) { c.wire.From, c.wire.Positions = wire.FromPositions, positions }
}

// Concurrency lets n handlers run at a time (1). Events of one key are still
// handled one after the other.
func Concurrency(n int) SubscribeOption {
	return func(c *subscribeConfig) { c.concurrency = max(n, 1) }
}

// MaxInflight bounds the events that are with this subscription and not settled.
func MaxInflight(n int) SubscribeOption {
	return func(c *subscribeConfig) { c.wire.MaxInflight = &n }
}

// AckTimeout says after which time without a sign of life an event is delivered
// to another consumer. It is extended for as long as a handler runs, so it need
// not be as long as the handler takes.
func AckTimeout(d time.Duration) SubscribeOption {
	ms := d.Milliseconds()
	return func(c *subscribeConfig) { c.wire.AckTimeoutMS = &ms }
}

// MaxExtension bounds how long the deadline of an event is extended (1 h): after
// that it goes to another consumer, though a handler of it still runs. 0 extends
// nothing. Where such an event, left unsettled by [ManualAck], comes to this
// subscription again, it is handled again.
func MaxExtension(d time.Duration) SubscribeOption {
	return func(c *subscribeConfig) { c.maxExtension = d }
}

// RetryFor bounds how long a handler that fails is called again for the same
// event before the event is given back, which counts an attempt (5 min). 0 gives
// it back after the first error.
func RetryFor(d time.Duration) SubscribeOption {
	return func(c *subscribeConfig) { c.retryFor = d }
}

// MaxAttempts says after how many deliveries an event becomes a dead letter.
func MaxAttempts(n int) SubscribeOption {
	return func(c *subscribeConfig) { c.wire.MaxAttempts = &n }
}

// Unordered lets events of one key be with several consumers of the group at a
// time. Within this subscription they are still handled one after the other.
func Unordered() SubscribeOption {
	ordered := false
	return func(c *subscribeConfig) { c.wire.Ordered = &ordered }
}

// RememberAcks has the sidecar remember acked ids for that long (0: the default
// of 7 days), so that an id that was acked is not delivered to the group again.
func RememberAcks(ttl time.Duration) SubscribeOption {
	return func(c *subscribeConfig) {
		c.wire.ExactlyOnce = true
		if ms := ttl.Milliseconds(); ms > 0 {
			c.wire.DedupeTTLMS = &ms
		}
	}
}

// WithFilter delivers only events that the filter lets pass.
func WithFilter(f Filter) SubscribeOption {
	return func(c *subscribeConfig) { c.wire.Filter = &f }
}

// ManualAck settles nothing when a handler returns nil: the message is to be
// settled with [Message.Ack] or [Message.Nack], then or later, by any goroutine.
// Until then its deadline is extended.
func ManualAck() SubscribeOption { return func(c *subscribeConfig) { c.manual = true } }

// MaxBytes bounds the size of the events that wait for handlers (64 MiB). At the
// bound the connection is not read, which slows the sidecar down.
func MaxBytes(n int) SubscribeOption {
	return func(c *subscribeConfig) { c.maxBytes = max(n, 1) }
}

// OnAssigned is called when partitions of the topic become this subscription's
// own, before any event of them is handled: the place to load state that is kept
// by partition. Only subscriptions with a group have partitions of their own.
//
// OnAssigned and [OnRevoked] are called one at a time, in order. Their context
// does not end with [Subscription.Stop].
func OnAssigned(f func(ctx context.Context, partitions []int)) SubscribeOption {
	return func(c *subscribeConfig) { c.wire.Rebalance, c.assigned = true, f }
}

// OnRevoked is called when partitions are not this subscription's own any more,
// also because the connection broke or the subscription ends, after the last
// handler of an event of them has returned. They may be another consumer's
// already: what is written then must bear that.
func OnRevoked(f func(ctx context.Context, partitions []int)) SubscribeOption {
	return func(c *subscribeConfig) { c.wire.Rebalance, c.revoked = true, f }
}

// Subscribe subscribes to a topic and calls handler for its events. Consumers
// with the same group share the events, each of which is delivered until it is
// acked. Without a group ("") this subscription alone gets every event, nothing
// is acked, and what the handler returns is ignored.
//
// The context bounds the subscribing alone, which is tried again while it can
// succeed; the subscription ends with Stop, Drain or the client's Close. It has a
// connection of its own, and makes it anew when it breaks.
func (c *Client) Subscribe(ctx context.Context, topic, group string, handler Handler, opts ...SubscribeOption) (*Subscription, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: the handler of a subscription", ErrNil)
	}
	cfg := newSubscribeConfig(opts)
	if cfg.batch > 0 {
		return nil, errors.New("sluice: Batch needs SubscribeBatch")
	}
	cfg.handler = handler
	return c.subscribe(ctx, topic, group, cfg)
}

func newSubscribeConfig(opts []SubscribeOption) subscribeConfig {
	batch := deliverBatch
	cfg := subscribeConfig{concurrency: 1, maxExtension: defaultMaxExtension, retryFor: defaultRetryFor, maxBytes: defaultHeldBytes}
	cfg.wire.MaxBatch = &batch
	for _, set := range opts {
		if set != nil {
			set(&cfg)
		}
	}
	return cfg
}

func (c *Client) subscribe(ctx context.Context, topic, group string, cfg subscribeConfig) (*Subscription, error) {
	if err := cfg.check(group); err != nil {
		return nil, err
	}
	s := newSubscription(ctx, c, topic, group, cfg)
	conn, err := c.reach(ctx, true, func(conn *Conn) error { return s.join(ctx, conn) })
	if err != nil {
		return nil, err
	}
	return s, s.start(conn)
}

func (c *subscribeConfig) check(group string) error {
	switch {
	case group == "" && c.manual:
		return errors.New("sluice: ManualAck needs a group: without one there is nothing to ack")
	case group == "" && c.wire.Rebalance:
		return errors.New("sluice: OnAssigned and OnRevoked need a group: without one there are no partitions to assign")
	}
	return nil
}

// RetryIn wraps the error of a handler so that its event is delivered again
// after d, instead of after the policy's backoff.
func RetryIn(d time.Duration, err error) error {
	return &nackAs{Nack{DelayMS: delayMS(d)}, err}
}

// Hold wraps the error of a handler that cannot handle its event yet: the
// event is delivered again after d without counting an attempt, and later events
// of its key wait for it.
func Hold(d time.Duration, err error) error {
	return &nackAs{Nack{DelayMS: delayMS(d), Hold: true}, err}
}

// DeadLetter wraps the error of a handler that no other attempt would change: the
// event goes to the dead letters at once, with the error's text as the reason.
func DeadLetter(err error) error { return &nackAs{Nack{DeadLetter: true}, err} }

func delayMS(d time.Duration) *int64 {
	ms := min(max(d.Milliseconds(), 0), wire.MaxDelayMS)
	return &ms
}

// nackAs says how the error is to be nacked.
type nackAs struct {
	nack Nack
	error
}

func (e *nackAs) Unwrap() error { return e.error }
