package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/settings"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Handler handles one event. When it returns nil the event is acked. When it returns an error it
// is called again for the same event after a pause, for up to [option.RetryFor]; that counts no
// attempt, and later events of the key wait. After that, and at once with [option.MaxAttempts], the event is given back and delivered again
// after the policy's backoff. After maxAttempts deliveries it is moved to the dead-letter topic,
// with the error's text as the reason. [RetryIn], [Hold] and [DeadLetter] wrap errors that say
// more. The result of a handler that settled its message itself, with [Message.Ack] or
// [Message.Nack], does not count.
//
// The context ends with [Subscription.Stop]; with the cause [ErrLost] when the connection is lost,
// for then the event is delivered again; and with [ErrRevoked] when its partition is another
// consumer's, where [option.OnAssigned] or [option.OnRevoked] ask for partitions. It carries the
// values of the context given to Subscribe, and what [WithPropagator] extracts.
type Handler func(ctx context.Context, m *Message) error

type subscribeConfig struct {
	settings.Subscribe
	handler      Handler
	batchHandler BatchHandler // nil: handler is called for each event
	retryFor     time.Duration
}

const (
	defaultMaxExtension = time.Hour
	defaultRetryFor     = 5 * time.Minute
	defaultHeldBytes    = 64 << 20
	// deliverBatch is the most events of one frame.
	deliverBatch = 100
	// loneWindow is the most events that a subscription without a group holds; with a group the
	// sidecar counts.
	loneWindow = 1000
)

// Subscribe subscribes to a topic and calls handler for its events. Consumers with the same group
// share the events, each of which is delivered until it is acked. Without a group ("") this
// subscription alone gets every event, nothing is acked, and the handler's result is ignored.
//
// The context bounds the subscribing alone, which is tried again while it can succeed; the
// subscription ends with Stop, Drain or the client's Close. It has a connection of its own, and
// makes it again when it breaks.
func (c *Client) Subscribe(ctx context.Context, topic, group string, handler Handler, opts ...option.Subscribe) (*Subscription, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: the handler of a subscription", ErrNil)
	}
	cfg := newSubscribeConfig(opts)
	if cfg.Batch > 0 {
		return nil, errors.New("sluice: Batch needs SubscribeBatch")
	}
	cfg.handler = handler
	return c.subscribe(ctx, topic, group, cfg)
}

func newSubscribeConfig(opts []option.Subscribe) subscribeConfig {
	batch := deliverBatch
	cfg := subscribeConfig{Subscribe: settings.Subscribe{
		Concurrency: 1, MaxExtension: defaultMaxExtension, MaxBytes: defaultHeldBytes,
	}}
	cfg.Wire.MaxBatch = &batch
	for _, set := range opts {
		if set != nil {
			set(&cfg.Subscribe)
		}
	}
	switch {
	case cfg.RetryFor != nil:
		cfg.retryFor = *cfg.RetryFor
	case cfg.Wire.MaxAttempts == nil:
		cfg.retryFor = defaultRetryFor
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
	case c.Bad != nil:
		return c.Bad
	case group == "" && c.Manual:
		return errors.New("sluice: ManualAck needs a group: without one there is nothing to ack")
	case group == "" && c.Wire.Rebalance:
		return errors.New("sluice: OnAssigned and OnRevoked need a group: without one there are no partitions to assign")
	case group != "" && c.EndOnGap:
		return errors.New("sluice: EndOnGap is for subscriptions without a group: the sidecar keeps the cursor of a group")
	}
	return nil
}

// RetryIn wraps the error of a handler so that its event is delivered again after d, instead of
// after the policy's backoff.
func RetryIn(d time.Duration, err error) error {
	return &nackAs{Nack{DelayMS: delayMS(d)}, err}
}

// Hold wraps the error of a handler that cannot handle its event yet: the event is delivered again
// after d without counting an attempt, and later events of its key wait for it.
func Hold(d time.Duration, err error) error {
	return &nackAs{Nack{DelayMS: delayMS(d), Hold: true}, err}
}

// DeadLetter wraps the error of a handler that no other attempt would change: the event goes to the
// dead letters at once, with the error's text as the reason.
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
