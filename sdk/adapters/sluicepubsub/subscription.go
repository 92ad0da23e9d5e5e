package sluicepubsub

import (
	"context"
	"errors"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"
)

// pullWait is how long one pull waits for an event. The interface asks for about a second at most.
const pullWait = time.Second

var (
	receives = batcher.Options{MaxBatchSize: 100, MaxHandlers: 4}
	settles  = batcher.Options{MaxBatchSize: 1000, MaxHandlers: 4}
)

// SubscriptionOptions are options of OpenSubscription.
type SubscriptionOptions struct {
	// Options are those of the pulls: From for a group that is new, AckTimeoutMS for messages that take longer than 30 s.
	Options wire.SubscribeOptions
	// ReceiveBatcherOptions and AckBatcherOptions are those of receiving, and of acks and nacks.
	ReceiveBatcherOptions, AckBatcherOptions batcher.Options
}

// OpenSubscription returns a subscription that pulls the events of a consumer group with client; opts may be nil. The group is
// made by the first Receive where there is none. A nacked event is delivered again after the backoff of the topic's policy.
func OpenSubscription(client *sluice.Client, topic, group string, opts *SubscriptionOptions) *pubsub.Subscription {
	if opts == nil {
		opts = &SubscriptionOptions{}
	}
	return pubsub.NewSubscription(newSubscription(client, topic, group, opts),
		receives.NewMergedOptions(&opts.ReceiveBatcherOptions), settles.NewMergedOptions(&opts.AckBatcherOptions))
}

type subscription struct {
	endpoint
	group   string
	options wire.SubscribeOptions
}

var _ driver.Subscription = subscription{}

func newSubscription(client *sluice.Client, topic, group string, opts *SubscriptionOptions) subscription {
	return subscription{endpoint: endpoint{client: client, topic: topic}, group: group, options: opts.Options}
}

func (s subscription) ReceiveBatch(ctx context.Context, maxMessages int) ([]*driver.Message, error) {
	deliveries, err := s.client.HTTP().Pull(ctx, admin.PullQuery{
		Topic: s.topic, Group: s.group, Max: maxMessages, Wait: pullWait, Options: s.options,
	})
	ms := make([]*driver.Message, len(deliveries))
	for i := range deliveries {
		ms[i] = message(&deliveries[i])
	}
	return ms, err
}

func message(d *wire.Delivery) *driver.Message {
	m := &driver.Message{LoggableID: d.Event.ID, Body: d.Event.Payload, AckID: d.Lease, AsFunc: asPointer(d)}
	for _, header := range d.Event.Headers {
		if m.Metadata == nil {
			m.Metadata = make(map[string]string, len(d.Event.Headers))
		}
		m.Metadata[header.Name] = header.Value
	}
	return m
}

// SendAcks ignores stale leases: such an event was settled before, or is delivered again.
func (s subscription) SendAcks(ctx context.Context, ids []driver.AckID) error {
	results, err := s.client.HTTP().Ack(ctx, s.topic, s.group, leases(ids)...)
	return firstBut(wire.StaleLease, results, err)
}

func (subscription) CanNack() bool { return true }

func (s subscription) SendNacks(ctx context.Context, ids []driver.AckID) error {
	results, err := s.client.HTTP().Nack(ctx, s.topic, s.group, wire.Nack{}, leases(ids)...)
	return firstBut(wire.StaleLease, results, err)
}

func leases(ids []driver.AckID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.(string)
	}
	return out
}

// firstBut returns err, or else the first result that has another code.
func firstBut(code wire.Code, results []*wire.Error, err error) error {
	for _, refusal := range results {
		if err == nil && refusal != nil && refusal.Code != code {
			return refusal
		}
	}
	return err
}

// IsRetryable reports whether the same request may succeed: the sidecar asked for time, or did not answer.
func (subscription) IsRetryable(err error) bool {
	if refusal, ok := errors.AsType[*sluice.Error](err); ok {
		_, wait := refusal.RetryAfterMS()
		return wait
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
