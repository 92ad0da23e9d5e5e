package sluicewatermill

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// errNacked gives an event back: it is delivered again after the backoff of the topic's policy.
var errNacked = errors.New("nacked")

// SubscriberConfig says how a subscriber consumes.
type SubscriberConfig struct {
	// Group is the consumer group: its subscribers share the events, on all sidecars of a store. Without one, each
	// subscription gets every event, a nack changes nothing, and nothing is remembered.
	Group string
	// Options are those of each subscription: option.FromEarliest for a group that is new, for example, or
	// option.Concurrency for more messages at a time. A nacked message is given back to the group at once unless
	// option.RetryFor is among them.
	Options []option.Subscribe
}

// A Subscriber is a message.Subscriber. It may be used by several goroutines at once.
type Subscriber struct {
	client *sluice.Client
	config SubscriberConfig
	logger watermill.LoggerAdapter

	mu     sync.Mutex
	closed bool
	open   map[*sluice.Subscription]struct{}
	ended  sync.WaitGroup // for those of open
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber returns a subscriber that consumes with client. The logger, which may be nil, hears of subscriptions that the
// sidecar ended.
func NewSubscriber(client *sluice.Client, config SubscriberConfig, logger watermill.LoggerAdapter) *Subscriber {
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Subscriber{client: client, config: config, logger: logger, open: map[*sluice.Subscription]struct{}{}}
}

// Subscribe returns the messages of a topic, one at a time unless the options say more. A message's context ends once it is
// acked or nacked, with ctx, and with Close; the event of a message that was neither is then delivered again.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	handle := func(ctx context.Context, m *sluice.Message) error { return deliver(ctx, out, &m.Event) }
	options := append([]option.Subscribe{option.RetryFor(0)}, s.config.Options...)
	sub, err := s.client.Subscribe(ctx, topic, s.config.Group, handle, options...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		sub.Stop()
		return nil, ErrClosed
	}
	s.open[sub] = struct{}{}
	stop := context.AfterFunc(ctx, sub.Stop)
	s.ended.Go(func() {
		<-sub.Closed() // no handler runs any more
		stop()
		close(out)
		if err := sub.Err(); err != nil {
			s.logger.Error("The subscription ended", err, watermill.LogFields{"topic": topic, "group": s.config.Group})
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, sub)
	})
	return out, nil
}

// deliver hands an event out and waits until its message is settled.
func deliver(ctx context.Context, out chan<- *message.Message, event *sluice.Event) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := message.NewMessageWithContext(ctx, event.ID, event.Payload)
	for _, header := range event.Headers {
		m.Metadata.Set(header.Name, header.Value)
	}
	select {
	case out <- m:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-m.Acked():
		return nil
	case <-m.Nacked():
		return errNacked
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all subscriptions, and returns once their channels are closed.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	for sub := range s.open {
		sub.Stop()
	}
	s.mu.Unlock()
	s.ended.Wait()
	return nil
}
