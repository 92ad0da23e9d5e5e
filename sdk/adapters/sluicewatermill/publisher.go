package sluicewatermill

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/internal/adapter"
)

// ErrClosed is what a publisher or a subscriber returns after its Close.
var ErrClosed = errors.New("sluicewatermill: closed")

// PublisherConfig says how messages become events. The zero value is usable.
type PublisherConfig struct {
	// Key returns the key of a message's event. Events of one key keep their order; nil and "" give no key.
	Key func(topic string, m *message.Message) string
}

// A Publisher is a message.Publisher. It may be used by several goroutines at once.
type Publisher struct {
	client *sluice.Client
	config PublisherConfig
	closed atomic.Bool
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that publishes with client.
func NewPublisher(client *sluice.Client, config PublisherConfig) *Publisher {
	return &Publisher{client: client, config: config}
}

// Publish publishes the messages one after the other, each with its own context, and returns once all are durable. An error
// means that the message that it names is not known to be stored, and that those behind it were not published.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if p.closed.Load() {
			return ErrClosed
		}
		event := p.event(topic, m)
		if _, err := p.client.Publish(m.Context(), &event); err != nil {
			return fmt.Errorf("sluicewatermill: message %q to %s: %w", m.UUID, topic, err)
		}
	}
	return nil
}

// Close refuses what is published from now on. Every Publish that has returned nil is durable already.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}

func (p *Publisher) event(topic string, m *message.Message) sluice.Event {
	event := adapter.Event(topic, m.Payload, m.Metadata)
	event.ID = m.UUID
	if p.config.Key != nil {
		event.Key = p.config.Key(topic, m)
	}
	return event
}
