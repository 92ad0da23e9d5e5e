// Tracing follows one event from a publisher through the sidecar to two consumer groups: as spans
// of one trace, which the sidecar sends wherever OTEL_EXPORTER_OTLP_ENDPOINT says.
//
//	tracing work       publish an event as part of a trace, and consume it in two groups
//	tracing receive    receive spans in place of a collector, and draw the tree of that trace
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

const topic = "orders.created"

var groups = []string{"billing", "shipping"}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "work":
		err = work(ctx)
	case len(os.Args) == 2 && os.Args[1] == "receive":
		err = receive(ctx)
	default:
		err = errors.New("usage: tracing work|receive")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// work is an application. An application with OpenTelemetry uses sluice.WithPropagator, which
// writes and reads the headers. Nothing else is needed, so this one does that itself.
func work(ctx context.Context) error {
	client, err := sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"))
	if err != nil {
		return err
	}
	handled := make(chan string, 2*len(groups))
	for _, group := range groups {
		_, err := client.Subscribe(ctx, topic, group, func(_ context.Context, m *sluice.Message) error {
			if group == "shipping" && m.Attempt == 1 {
				return sluice.RetryIn(0, errors.New("the printer is out of paper"))
			}
			parent, _ := m.Event.Headers.Get("traceparent")
			handled <- fmt.Sprintf("%-8s handles it in attempt %d, with traceparent %s", group, m.Attempt, parent)
			return nil
		}, option.FromEarliest())
		if err != nil {
			return err
		}
	}

	traceparent := fmt.Sprintf("00-%s-%s-01", digits(16), digits(8)) // of the span that publishes
	receipt, err := client.Publish(ctx, &sluice.Event{
		Topic: topic, Payload: []byte(`{"order":17}`), Headers: sluice.Headers{{Name: "traceparent", Value: traceparent}},
	})
	if err != nil {
		return err
	}
	fmt.Printf("event %s published, with traceparent %s\n", receipt.ID, traceparent)
	for range groups {
		select {
		case line := <-handled:
			fmt.Println(line)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return client.Drain(ctx)
}

// digits are the hexadecimal digits of n random bytes.
func digits(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
