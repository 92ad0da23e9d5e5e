package dapr

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dapr/go-sdk/client"
	"github.com/dapr/go-sdk/service/common"
	"github.com/dapr/go-sdk/service/grpc"
	"github.com/dapr/go-sdk/service/http"
)

// services are the SDK's two kinds of applications.
var services = map[string]func(t *testing.T, addr string) common.Service{
	"http": func(_ *testing.T, addr string) common.Service { return http.NewService(addr) },
	"grpc": func(t *testing.T, addr string) common.Service {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return grpc.NewServiceWithListener(ln)
	},
}

// declared are subscriptions that the SDK cannot describe itself.
const declared = `apiVersion: dapr.io/v2alpha1
kind: Subscription
metadata: {name: letters}
spec:
  pubsubname: pubsub
  topic: fragile
  routes: {default: /fragile}
  deadLetterTopic: dead
scopes: [shop]
`

// TestApplications publishes by the SDK's client, one by one and in bulk, to the SDK's application, which succeeds,
// retries and drops; it and the sidecar restart.
func TestApplications(t *testing.T) {
	for kind, service := range services {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			addr, dir := freeAddress(t), t.TempDir()
			var a *application
			start := func() (stop func()) {
				a = &application{Service: service(t, addr), events: make(chan *common.TopicEvent, 100), seen: map[string]int{}}
				a.on(t, common.Subscription{Topic: "orders", Route: "/orders"})
				a.on(t, common.Subscription{Topic: "orders", Route: "/big", Match: `event.type == "big"`, Priority: 1})
				a.on(t, common.Subscription{Topic: "fragile", Route: "/fragile"})
				a.on(t, common.Subscription{Topic: "dead", Route: "/dead"})
				return a.run(t)
			}
			stop := start()
			args := []string{"--dapr-app", kind + "://" + addr, "--dapr-subscriptions", write(t, "subscriptions.yaml", declared)}
			s := startSidecar(t, dir, args...)
			c := s.client(t)
			awaitSubscribed(t, c, a)

			publish(t, c, "orders", "plain", client.PublishEventWithContentType("text/plain"))
			if e := a.next(t, "orders", "plain"); e.Source != "shop" || e.PubsubName != "pubsub" || e.Type != "com.dapr.event.sent" || e.SpecVersion != "1.0" {
				t.Errorf("%+v", e)
			}
			publish(t, c, "orders", map[string]int{"n": 1})
			if e := <-a.events; fmt.Sprint(e.Data) != "map[n:1]" || e.DataContentType != "application/json" {
				t.Errorf("%+v", e)
			}
			publish(t, c, "orders", "big", client.PublishEventWithMetadata(map[string]string{"cloudevent.type": "big", "cloudevent.id": "b1"}))
			if e := a.next(t, "orders", "big"); e.ID != "b1" || e.Type != "big" {
				t.Errorf("%+v", e)
			}
			publish(t, c, "orders", "retry")
			a.next(t, "orders", "retry")
			a.next(t, "orders", "retry")
			publish(t, c, "orders", "drop")
			a.next(t, "orders", "drop")
			res := c.PublishEvents(t.Context(), "pubsub", "orders", []any{"one", "two", client.PublishEventsEvent{
				EntryID: "3", Data: []byte("three"), ContentType: "text/plain", Metadata: map[string]string{"ttlInSeconds": "0"}}})
			if len(res.FailedEvents) != 1 || res.Error == nil {
				t.Errorf("bulk: %+v", res)
			}
			got := map[any]bool{(<-a.events).Data: true, (<-a.events).Data: true}
			if !got["one"] || !got["two"] {
				t.Errorf("bulk: %v", got)
			}

			publish(t, c, "fragile", "drop")
			a.next(t, "fragile", "drop")
			a.next(t, "dead", "drop")
			publish(t, c, "fragile", "fail")
			for range 3 {
				a.next(t, "fragile", "fail")
			}
			a.next(t, "dead", "fail")

			stop()
			publish(t, c, "orders", "while the application is away")
			stop = start()
			a.next(t, "orders", "while the application is away")
			s.stop()
			s = startSidecar(t, dir, args...)
			publish(t, s.client(t), "orders", "after a restart of the sidecar")
			a.next(t, "orders", "after a restart of the sidecar")
			stop()
		})
	}
}

// awaitSubscribed waits until the application gets events: its groups begin at the latest one.
func awaitSubscribed(t *testing.T, c client.Client, a *application) {
	t.Helper()
	for _, topic := range []string{"orders", "fragile", "dead"} {
		for deadline := time.Now().Add(patience); ; {
			publish(t, c, topic, "there?", client.PublishEventWithContentType("text/plain"))
			select {
			case <-a.events:
			case <-time.After(200 * time.Millisecond):
				if time.Now().After(deadline) {
					t.Fatalf("the application gets nothing of %s", topic)
				}
				continue
			}
			break
		}
	}
	for settled := false; !settled; { // those that came late
		select {
		case <-a.events:
		case <-time.After(500 * time.Millisecond):
			settled = true
		}
	}
}

// TestStreaming subscribes by the client alone.
func TestStreaming(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startSidecar(t, dir)
	c := s.client(t)
	dead := "dead"
	sub, err := c.Subscribe(t.Context(), client.SubscriptionOptions{PubsubName: "pubsub", Topic: "orders", DeadLetterTopic: &dead})
	if err != nil {
		t.Fatal(err)
	}
	letters := make(chan *common.TopicEvent, 10)
	end, err := c.SubscribeWithHandler(t.Context(), client.SubscriptionOptions{PubsubName: "pubsub", Topic: "dead"},
		func(e *common.TopicEvent) common.SubscriptionResponseStatus {
			letters <- e
			return common.SubscriptionResponseStatusSuccess
		})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, c, "orders", "a", client.PublishEventWithMetadata(map[string]string{"partitionKey": "k", "cloudevent.id": "i"}))
	publish(t, c, "orders", "b", client.PublishEventWithMetadata(map[string]string{"partitionKey": "k"}))
	for attempt := 1; attempt <= 3; attempt++ {
		m, err := sub.Receive()
		if err != nil || string(m.RawData) != "a" {
			t.Fatalf("%v %v", m, err)
		}
		if err := m.Retry(); err != nil {
			t.Fatal(err)
		}
	}
	if e := <-letters; e.ID != "i" || string(e.RawData) != "a" || e.Topic != "dead" {
		t.Errorf("%+v", e)
	}
	m, err := sub.Receive()
	if err != nil || string(m.RawData) != "b" {
		t.Fatalf("%v %v", m, err)
	}
	if err := m.Success(); err != nil {
		t.Fatal(err)
	}
	publish(t, c, "orders", "c")
	if m, err = sub.Receive(); err != nil || string(m.RawData) != "c" {
		t.Fatalf("%v %v", m, err)
	}
	if err := sub.Close(); err != nil { // c goes back, and is not lost
		t.Fatal(err)
	}
	s.stop()
	s = startSidecar(t, dir)
	c = s.client(t)
	if sub, err = c.Subscribe(t.Context(), client.SubscriptionOptions{PubsubName: "pubsub", Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if m, err = sub.Receive(); err != nil || string(m.RawData) != "c" {
		t.Fatalf("%v %v", m, err)
	}
	if err := m.Drop(); err != nil {
		t.Fatal(err)
	}
	_ = end()
}

// TestRefusals: errors have gRPC's codes, and what Dapr has beside pub/sub says what it lacks.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := startSidecar(t, t.TempDir()).client(t)
	code := func(err error) codes.Code {
		for ; err != nil; err = unwrap(err) {
			if s, ok := status.FromError(err); ok {
				return s.Code()
			}
		}
		return codes.OK
	}
	id := client.PublishEventWithMetadata(map[string]string{"cloudevent.id": "x"})
	publish(t, c, "t", "1", id)
	publish(t, c, "t", "1", id) // the same again
	for want, err := range map[codes.Code]error{
		codes.AlreadyExists:   c.PublishEvent(t.Context(), "pubsub", "t", "2", id),
		codes.InvalidArgument: c.PublishEvent(t.Context(), "pubsub", "_reserved", "2"),
		codes.Unimplemented:   c.SaveState(context.Background(), "store", "key", []byte("v"), nil),
	} {
		if code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	meta, err := c.GetMetadata(t.Context())
	if err != nil || meta.ID != "shop" {
		t.Errorf("%+v %v", meta, err)
	}
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return nil
}
