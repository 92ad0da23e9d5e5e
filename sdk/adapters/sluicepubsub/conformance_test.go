package sluicepubsub

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/internal/sidecartest"
	"github.com/sluice-bus/sluice/sdk/wire"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"
)

// TestGoCloud is the Go CDK's own suite of drivers, with our additions about As.
func TestGoCloud(t *testing.T) {
	sidecar := sidecartest.Start(t, policies)
	var made atomic.Int64
	drivertest.RunConformanceTests(t, func(ctx context.Context, _ *testing.T) (drivertest.Harness, error) {
		client, err := sluice.Dial(ctx, sidecar.URL())
		return &harness{client: client, made: &made}, err
	}, []drivertest.AsTest{asTest{}})
}

// policies keep a publish from making the topic called missing.
const policies = `
- name: missing
  auto_create: false
`

func earliest() *SubscriptionOptions {
	return &SubscriptionOptions{Options: wire.SubscribeOptions{From: wire.FromEarliest}}
}

// harness makes a topic for each test, and a group for each subscription.
type harness struct {
	client *sluice.Client
	made   *atomic.Int64
	topic  string // of the test
}

func (h *harness) CreateTopic(ctx context.Context, _ string) (driver.Topic, func(), error) {
	h.topic = fmt.Sprint("topic-", h.made.Add(1))
	if _, err := h.client.HTTP().MakeTopic(ctx, h.topic); err != nil {
		return nil, nil, err
	}
	return newTopic(h.client, h.topic, &TopicOptions{}), func() {}, nil
}

func (h *harness) MakeNonexistentTopic(context.Context) (driver.Topic, error) {
	return newTopic(h.client, "missing", &TopicOptions{}), nil
}

func (h *harness) CreateSubscription(context.Context, driver.Topic, string) (driver.Subscription, func(), error) {
	group := fmt.Sprint("group-", h.made.Add(1))
	return newSubscription(h.client, h.topic, group, earliest()), func() {}, nil
}

func (h *harness) MakeNonexistentSubscription(context.Context) (driver.Subscription, func(), error) {
	return newSubscription(h.client, "missing", "group", earliest()), func() {}, nil
}

func (h *harness) Close()                              { _ = h.client.Close() }
func (h *harness) MaxBatchSizes() (int, int)           { return 0, 0 }
func (h *harness) SupportsMultipleSubscriptions() bool { return true }

// asTest holds what the package says of As.
type asTest struct{}

func (asTest) Name() string { return "what the package names" }

func (asTest) TopicCheck(topic *pubsub.Topic) error { return wants[*sluice.Client]("Topic", topic.As) }

func (asTest) SubscriptionCheck(s *pubsub.Subscription) error {
	return wants[*sluice.Client]("Subscription", s.As)
}

func (asTest) TopicErrorCheck(topic *pubsub.Topic, err error) error {
	return wants[*sluice.Error]("error of Send", func(i any) bool { return topic.ErrorAs(err, i) })
}

func (asTest) SubscriptionErrorCheck(s *pubsub.Subscription, err error) error {
	return wants[*sluice.Error]("error of Receive", func(i any) bool { return s.ErrorAs(err, i) })
}

func (asTest) MessageCheck(m *pubsub.Message) error {
	var delivery *wire.Delivery
	if !m.As(&delivery) || delivery.Event.Key != "customer-17" || delivery.Attempt != 1 {
		return fmt.Errorf("the message is %+v", delivery)
	}
	return nil
}

func (asTest) BeforeSend(as func(any) bool) error {
	var event *sluice.Event
	if !as(&event) {
		return fmt.Errorf("BeforeSend has no event")
	}
	event.Key = "customer-17"
	return nil
}

func (asTest) AfterSend(as func(any) bool) error {
	var receipt *sluice.Receipt
	if !as(&receipt) || receipt.Seq == 0 {
		return fmt.Errorf("the receipt is %+v", receipt)
	}
	return nil
}

func wants[T any](what string, as func(any) bool) error {
	var value T
	if !as(&value) {
		return fmt.Errorf("%s is no %T", what, value)
	}
	return nil
}

// TestGoCloudURLs: topics and subscriptions are opened by URL, with the sidecar as the host.
func TestGoCloudURLs(t *testing.T) {
	ctx := t.Context()
	base := Scheme + "://" + sidecartest.Start(t, policies).Address
	topic, err := pubsub.OpenTopic(ctx, base+"/orders.created?key_name=customer")
	if err != nil {
		t.Fatal(err)
	}
	defer topic.Shutdown(context.WithoutCancel(ctx))
	sent := &pubsub.Message{Body: []byte(`{"order":17}`), Metadata: map[string]string{"customer": "ann"}}
	if err := topic.Send(ctx, sent); err != nil {
		t.Fatal(err)
	}
	sub, err := pubsub.OpenSubscription(ctx, base+"/orders.created?group=billing&from=earliest")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Shutdown(context.WithoutCancel(ctx))
	got, err := sub.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got.Ack()
	var delivery *wire.Delivery
	if !got.As(&delivery) || delivery.Event.Key != "ann" || string(got.Body) != string(sent.Body) {
		t.Errorf("received %+v", delivery)
	}
	for bad, says := range map[string]string{
		base + "/orders.created":                        "group",
		base + "/orders.created?group=g&form=earliest":  `"form"`,
		base + "/orders.created?group=g&from=yesterday": `"yesterday"`,
	} {
		if _, err := pubsub.OpenSubscription(ctx, bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
