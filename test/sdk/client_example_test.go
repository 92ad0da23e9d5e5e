package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// stand starts what stands in for a sidecar at http://127.0.0.1:7070, and connects to it.
func stand(ctx context.Context) (client *sluice.Client, end func()) {
	sidecar := sluicetest.Start(sluicetest.Options{})
	client, err := sluice.Dial(ctx, sidecar.URL, sluice.WithReplayURL(sidecar.URL))
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		if err := client.Close(); err != nil {
			log.Fatal(err)
		}
		sidecar.Close()
	}
}

// fill publishes three orders.
func fill(ctx context.Context, client *sluice.Client) {
	for i := range 3 {
		e := sluice.Event{Topic: "orders", ID: fmt.Sprint("order-", i), Payload: fmt.Appendf(nil, `{"order":%d}`, i)}
		if _, err := client.Publish(ctx, &e); err != nil {
			log.Fatal(err)
		}
	}
}

// The whole way of an event: published, handled, acked.
func Example() {
	ctx := context.Background()
	sidecar := sluicetest.Start(sluicetest.Options{}) // in place of a sidecar at http://127.0.0.1:7070
	defer sidecar.Close()

	client, err := sluice.Dial(ctx, sidecar.URL)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	_, err = client.Subscribe(ctx, "orders", "billing", func(_ context.Context, m *sluice.Message) error {
		fmt.Printf("billing %s: %s\n", m.Event.Key, m.Event.Payload)
		close(done)
		return nil // acks it
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Publish(ctx, &sluice.Event{Topic: "orders", Key: "customer-17", Payload: []byte(`{"order":1}`)})
	if err != nil {
		log.Fatal(err)
	}
	<-done
	if err := client.Drain(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// billing customer-17: {"order":1}
}

// A client that starts together with its sidecar waits for it, and asks for a token whenever it
// connects.
func Example_dial() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sidecar := sluicetest.Start(sluicetest.Options{}) // in place of a sidecar at http://127.0.0.1:7070
	defer sidecar.Close()

	client, err := sluice.Dial(ctx, sidecar.URL,
		sluice.WithWait(),
		sluice.WithTokenFunc(func(context.Context) (string, error) { return "secret", nil }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("connected")
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// connected
}

// A refusal says by its code what is wrong.
func Example_clientPublish() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()

	receipt, err := client.Publish(ctx, &sluice.Event{Topic: "orders", ID: "order-1", Payload: []byte(`{"order":1}`)})
	fmt.Println(receipt.ID, receipt.Seq, err)

	_, err = client.Publish(ctx, &sluice.Event{Topic: "orders", Payload: []byte(`{"order":`)})
	fmt.Println(errors.Is(err, &sluice.Error{Code: wire.BadJSON}))
	// Output:
	// order-1 1 <nil>
	// true
}

func Example_clientPublishBatch() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()

	results, err := client.PublishBatch(ctx, []sluice.Event{
		{Topic: "orders", Key: "customer-17", Payload: []byte(`{"order":1}`)},
		{Topic: "orders", Key: "customer-17", Payload: []byte(`{"order":2}`)},
	})
	for _, r := range results {
		fmt.Println(r.Receipt.Seq, r.Err)
	}
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// 2 <nil>
	// <nil>
}

// Many events are on their way at a time; each has its result.
func Example_publisher() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()

	publisher := client.NewPublisher(option.Window(1000, 8<<20))
	for i := range 3 {
		e := sluice.Event{Topic: "orders", Key: "customer-17", Payload: fmt.Appendf(nil, `{"order":%d}`, i)}
		err := publisher.Publish(ctx, &e, func(r sluice.Receipt, err error) { fmt.Println(r.Seq, err) })
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := publisher.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	publisher.Close()
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}

// An error has the event delivered again; here at once.
func Example_clientSubscribe() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()

	done := make(chan struct{})
	sub, err := client.Subscribe(ctx, "orders", "billing", func(_ context.Context, m *sluice.Message) error {
		if m.Attempt == 1 {
			fmt.Println("attempt 1 fails")
			return sluice.RetryIn(0, errors.New("no connection to the bank"))
		}
		fmt.Println("attempt", m.Attempt, "succeeds")
		close(done)
		return nil
	}, option.FromEarliest(), option.Concurrency(4))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Publish(ctx, &sluice.Event{Topic: "orders", Payload: []byte(`{"order":1}`)}); err != nil {
		log.Fatal(err)
	}
	<-done
	sub.Drain()
	<-sub.Closed()
	// Output:
	// attempt 1 fails
	// attempt 2 succeeds
}

// Without a group a subscription gets every event, and nothing is remembered.
func Example_clientSubscribeWithoutAGroup() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()
	fill(ctx, client)

	seen := make(chan string)
	sub, err := client.Subscribe(ctx, "orders", "", func(_ context.Context, m *sluice.Message) error {
		seen <- m.Event.ID
		return nil
	}, option.FromEarliest())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-seen, <-seen, <-seen)
	sub.Stop()
	<-sub.Closed()
	// Output:
	// order-0 order-1 order-2
}

// Messages that are settled together, after their handlers have returned.
func Example_messageAck() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()
	fill(ctx, client)

	messages := make(chan *sluice.Message, 100)
	sub, err := client.Subscribe(ctx, "orders", "archive", func(_ context.Context, m *sluice.Message) error {
		messages <- m
		return nil
	}, option.FromEarliest(), option.ManualAck(), option.MaxInflight(100))
	if err != nil {
		log.Fatal(err)
	}
	batch := []*sluice.Message{<-messages, <-messages, <-messages}
	fmt.Println("archived", len(batch))
	for _, m := range batch {
		if err := m.Ack(ctx); err != nil {
			log.Fatal(err)
		}
	}
	sub.Drain()
	<-sub.Closed()
	// Output:
	// archived 3
}

// State that is kept by partition is loaded when the partition comes, and saved when it goes.
func Example_onAssigned() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()
	fill(ctx, client)

	handled := make(chan struct{}, 3)
	sub, err := client.Subscribe(ctx, "orders", "totals",
		func(context.Context, *sluice.Message) error { handled <- struct{}{}; return nil },
		option.FromEarliest(),
		option.OnAssigned(func(_ context.Context, partitions []int) { fmt.Println("load", partitions) }),
		option.OnRevoked(func(_ context.Context, partitions []int) { fmt.Println("save", partitions) }))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		<-handled
	}
	sub.Drain()
	<-sub.Closed()
	// Output:
	// load [0]
	// save [0]
}

func Example_clientReplay() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()
	fill(ctx, client)

	for event, err := range client.Replay(ctx, sluice.ReplayQuery{Topic: "orders", From: wire.FromAfterID, AfterID: "order-0"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.ID, string(event.Payload))
	}
	// Output:
	// order-1 {"order":1}
	// order-2 {"order":2}
}

func Example_clientExport() {
	ctx := context.Background()
	client, end := stand(ctx)
	defer end()
	fill(ctx, client)

	count := 0
	for _, err := range client.Export(ctx, sluice.ExportQuery{Topic: "orders"}) {
		if err != nil {
			log.Fatal(err) // what came is not all
		}
		count++
	}
	fmt.Println(count, "events")
	// Output:
	// 3 events
}

// The trace of a publisher goes on in the handler. In a program, inject and extract are those of
// OpenTelemetry's propagator.
func Example_withPropagator() {
	ctx := context.Background()
	sidecar := sluicetest.Start(sluicetest.Options{}) // in place of a sidecar at http://127.0.0.1:7070
	defer sidecar.Close()

	type span struct{}
	client, err := sluice.Dial(ctx, sidecar.URL, sluice.WithPropagator(
		func(ctx context.Context, headers map[string]string) {
			headers["traceparent"], _ = ctx.Value(span{}).(string)
		},
		func(ctx context.Context, headers map[string]string) context.Context {
			return context.WithValue(ctx, span{}, headers["traceparent"])
		}))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	_, err = client.Subscribe(ctx, "orders", "billing", func(ctx context.Context, _ *sluice.Message) error {
		fmt.Println("handled in", ctx.Value(span{}))
		close(done)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx = context.WithValue(ctx, span{}, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if _, err := client.Publish(ctx, &sluice.Event{Topic: "orders", Payload: []byte(`1`)}); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := client.Drain(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// handled in 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
}
