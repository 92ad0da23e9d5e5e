package sluicepubsub

import (
	"context"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/internal/adapter"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"
)

// sends are batches of what waits, below the sidecar's own limits of a batch.
var sends = batcher.Options{MaxBatchSize: 100, MaxHandlers: 4, MaxBatchByteSize: 1 << 20}

// TopicOptions are options of OpenTopic.
type TopicOptions struct {
	// KeyName is the name of the metadata whose value is the event's key. Events of one key keep their order where BatcherOptions
	// has one handler.
	KeyName string
	// BatcherOptions are those of sending.
	BatcherOptions batcher.Options
}

// OpenTopic returns a topic that publishes with client; opts may be nil. Send returns once the event is durable. It does not ask
// whether the topic exists.
func OpenTopic(client *sluice.Client, name string, opts *TopicOptions) *pubsub.Topic {
	if opts == nil {
		opts = &TopicOptions{}
	}
	return pubsub.NewTopic(newTopic(client, name, opts), sends.NewMergedOptions(&opts.BatcherOptions))
}

type topic struct {
	endpoint
	keyName string
}

var _ driver.Topic = topic{}

func newTopic(client *sluice.Client, name string, opts *TopicOptions) topic {
	return topic{endpoint: endpoint{client: client, topic: name}, keyName: opts.KeyName}
}

func (t topic) SendBatch(ctx context.Context, ms []*driver.Message) error {
	events := make([]sluice.Event, len(ms))
	for i, m := range ms {
		events[i] = adapter.Event(t.topic, m.Body, m.Metadata)
		events[i].Key = m.Metadata[t.keyName]
		if m.BeforeSend == nil {
			continue
		}
		if err := m.BeforeSend(asPointer(&events[i])); err != nil {
			return err
		}
	}
	results, err := t.client.PublishBatch(ctx, events)
	if err != nil {
		return err
	}
	for i, m := range ms {
		if results[i].Err != nil {
			return results[i].Err
		}
		if m.AfterSend == nil {
			continue
		}
		if err := m.AfterSend(asPointer(&results[i].Receipt)); err != nil {
			return err
		}
	}
	return nil
}

// IsRetryable is false: the client has retried what can succeed, under the ids of the first attempt. A retry here would
// be another event.
func (topic) IsRetryable(error) bool { return false }
