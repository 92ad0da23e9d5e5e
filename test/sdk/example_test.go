package sdk_test

import (
	"context"
	"fmt"
	"log"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// Events are pipelined: each is on its way before the one before it is answered.
func Example_connPublishAsync() {
	ctx := context.Background()
	sidecar := sluicetest.Start(sluicetest.Options{}) // in place of a sidecar at http://127.0.0.1:7070
	defer sidecar.Close()

	conn, err := sluice.DialConn(ctx, sidecar.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		e := wire.Event{Topic: "orders", ID: fmt.Sprint("order-", i), Payload: fmt.Appendf(nil, `{"order":%d}`, i)}
		err := conn.PublishAsync(ctx, &e, func(r wire.Receipt, err error) {
			fmt.Println(r.ID, r.Seq, err)
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := conn.Flush(ctx); err != nil { // all are answered
		log.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-0 1 <nil>
	// order-1 2 <nil>
	// order-2 3 <nil>
}

// A callback must not wait, so it hands its events on.
func Example_connSubscribe() {
	ctx := context.Background()
	sidecar := sluicetest.Start(sluicetest.Options{}) // in place of a sidecar at http://127.0.0.1:7070
	defer sidecar.Close()

	conn, err := sluice.DialConn(ctx, sidecar.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	events := make(chan wire.Delivery, 100) // as many as may be in flight
	sub, err := conn.Subscribe(ctx, "orders", "billing", nil, func(deliveries []wire.Delivery) {
		for _, d := range deliveries {
			events <- d
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := conn.Publish(ctx, &wire.Event{Topic: "orders", ID: "order-1", Payload: []byte(`{"order":1}`)}); err != nil {
		log.Fatal(err)
	}
	d := <-events
	fmt.Println(d.Event.ID, string(d.Event.Payload), d.Attempt)
	if err := sub.Ack(ctx, d.Event.ID); err != nil {
		log.Fatal(err)
	}
	if err := sub.Unsubscribe(ctx); err != nil {
		log.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-1 {"order":1} 1
}
