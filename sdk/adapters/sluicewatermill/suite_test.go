package sluicewatermill_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/adapters/sluicewatermill"
	"github.com/sluice-bus/sluice/sdk/internal/sidecartest"
	"github.com/sluice-bus/sluice/sdk/option"
)

const policies = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  delivery: {backoff: {min: 10ms, max: 100ms}, max_attempts: 1000}
`

// TestWatermill is Watermill's own suite. A restart of the service is a kill of the sidecar. Skipped, by the suite's own choice of
// features: TestNewSubscriberReceivesOldMessages, which is for systems in which each subscriber of a group gets what the group
// has acked before.
func TestWatermill(t *testing.T) {
	sidecar := sidecartest.Start(t, policies)
	restart := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sidecar.Restart() }))
	t.Cleanup(restart.Close)

	inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		client := dial(t, sidecar)
		publisher := sluicewatermill.NewPublisher(client, sluicewatermill.PublisherConfig{
			// Order is by key, and the suite asks for the order of equal payloads.
			Key: func(_ string, m *message.Message) string { return string(m.Payload) },
		})
		subscriber := sluicewatermill.NewSubscriber(client, sluicewatermill.SubscriberConfig{
			Group: group, Options: []option.Subscribe{option.FromEarliest()},
		}, watermill.NewStdLogger(false, false))
		if strings.Contains(t.Name(), "/TestReconnect/") {
			return publisher, lastLate{subscriber}
		}
		return publisher, subscriber
	}
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups:        true,
		GuaranteedOrder:       true,
		Persistent:            true,
		RestartServiceCommand: []string{"curl", "--silent", "--show-error", "--fail", restart.URL},
	}, func(t *testing.T) (message.Publisher, message.Subscriber) { return inGroup(t, "test") }, inGroup)
}

// lastLate lets the suite's TestReconnect note that its last message was published before it is received: the suite compares what it
// has noted as soon as all messages are there, and a message may be there before Publish has returned.
type lastLate struct{ message.Subscriber }

const reconnectMessages = 10_000

func (s lastLate) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		received := map[string]bool{}
		for m := range in {
			if received[m.UUID] = true; len(received) == reconnectMessages {
				time.Sleep(time.Second)
			}
			out <- m
		}
	}()
	return out, nil
}

// TestWatermillOutsideAGroup: without a group each subscription gets every message, and a payload comes back byte for byte.
func TestWatermillOutsideAGroup(t *testing.T) {
	client := dial(t, sidecartest.Start(t, policies))
	publisher := sluicewatermill.NewPublisher(client, sluicewatermill.PublisherConfig{})
	subscriber := sluicewatermill.NewSubscriber(client, sluicewatermill.SubscriberConfig{}, nil)
	var received []<-chan *message.Message
	for range 2 {
		messages, err := subscriber.Subscribe(context.Background(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		received = append(received, messages)
	}
	for _, payload := range []string{`{"order":1}`, `{ "order": 2 }`, "\xff\x00", ""} {
		sent := message.NewMessage(watermill.NewUUID(), []byte(payload))
		sent.Metadata.Set("Tenant", "eu")
		if err := publisher.Publish("orders", sent); err != nil {
			t.Fatal(err)
		}
		for _, messages := range received {
			got := <-messages
			if got.UUID != sent.UUID || string(got.Payload) != payload || got.Metadata.Get("Tenant") != "eu" {
				t.Errorf("sent %q, got %v", payload, got)
			}
			got.Ack()
		}
	}
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	for _, messages := range received {
		if _, open := <-messages; open {
			t.Error("a channel is open after Close")
		}
	}
	if _, err := subscriber.Subscribe(context.Background(), "orders"); err != sluicewatermill.ErrClosed {
		t.Errorf("a closed subscriber: %v", err)
	}
}

func dial(t *testing.T, sidecar *sidecartest.Sidecar) *sluice.Client {
	t.Helper()
	client, err := sluice.Dial(t.Context(), sidecar.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
