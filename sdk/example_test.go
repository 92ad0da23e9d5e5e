package sluice_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

func Example() {
	ctx := context.Background()
	client, err := sluice.Dial(ctx, "http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Subscribe(ctx, "orders", "billing", func(_ context.Context, m *sluice.Message) error {
		fmt.Println("bill", m.Event.ID)
		return nil // acked
	}, option.FromEarliest())
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := client.Publish(ctx, &sluice.Event{Topic: "orders", Key: "customer-17", Payload: []byte(`{"order":1}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("durable as", receipt.ID)
	if err := client.Drain(ctx); err != nil {
		log.Fatal(err)
	}
}

// A refusal is a value to compare with. Most that ask for time never come here: the client waits
// and tries again.
func ExampleClient_Publish() {
	publish := func(ctx context.Context, client *sluice.Client, order string) error {
		_, err := client.Publish(ctx, &sluice.Event{Topic: "orders", ID: order, Payload: []byte(`{}`)})
		switch {
		case errors.Is(err, sluice.ErrTopicPaused):
			return fmt.Errorf("no orders are taken at the moment: %w", err)
		case errors.Is(err, sluice.ErrConflict):
			return fmt.Errorf("another order has the number %s: %w", order, err)
		}
		return err
	}
	_ = publish
}

// Handlers that write to a database are faster with several events at a time.
func ExampleClient_SubscribeBatch() {
	consume := func(ctx context.Context, client *sluice.Client,
		insert func(context.Context, *sluice.Event) error) (*sluice.Subscription, error) {
		return client.SubscribeBatch(ctx, "orders", "warehouse", func(ctx context.Context, batch []*sluice.Message) error {
			errs := make(sluice.BatchErrors, len(batch)) // nil acks
			for i, m := range batch {
				errs[i] = insert(ctx, &m.Event)
			}
			return errs
		}, option.Batch(500, 50*time.Millisecond), option.MaxInflight(1000))
	}
	_ = consume
}

// A sidecar behind TLS, with a certificate that it asks for.
func ExampleWithTLSConfig() {
	own, err := tls.LoadX509KeyPair("orders.crt", "orders.key")
	if err != nil {
		log.Fatal(err)
	}
	client, err := sluice.Dial(context.Background(), "https://sluice.internal:7070",
		sluice.WithTLSConfig(&tls.Config{Certificates: []tls.Certificate{own}}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleWithDialer() {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client, err := sluice.Dial(context.Background(), "http://127.0.0.1:7070", sluice.WithDialer(dialer.DialContext))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleWithObserver() {
	client, err := sluice.Dial(context.Background(), "http://127.0.0.1:7070", sluice.WithObserver(sluice.Observer{
		Published: func(topic string, took time.Duration, err error) {
			log.Printf("published to %s after %v: %v", topic, took, err) // or a histogram's Observe(took.Seconds())
		},
		Handled: func(topic, group string, took time.Duration, err error) {
			log.Printf("%s handled an event of %s for %v: %v", group, topic, took, err)
		},
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// A subscription that the sidecar refuses for good has ended.
func ExampleSubscription_Err() {
	wait := func(sub *sluice.Subscription) error {
		<-sub.Closed()
		return sub.Err() // nil after Stop, Drain and the client's Close
	}
	_ = wait
}
