package sluicewatermill_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/adapters/sluicewatermill"
	"github.com/sluice-bus/sluice/sdk/option"
)

// A router bills each order, and publishes an invoice.
func Example() {
	ctx := context.Background()
	client, err := sluice.Dial(ctx, "http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	logger := watermill.NewStdLogger(false, false)
	publisher := sluicewatermill.NewPublisher(client, sluicewatermill.PublisherConfig{
		Key: func(_ string, m *message.Message) string { return m.Metadata.Get("customer") },
	})
	subscriber := sluicewatermill.NewSubscriber(client, sluicewatermill.SubscriberConfig{
		Group: "billing", Options: []option.Subscribe{option.FromEarliest(), option.Concurrency(8)},
	}, logger)

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		log.Fatal(err)
	}
	router.AddHandler("bill", "orders.created", subscriber, "invoices.created", publisher,
		func(order *message.Message) ([]*message.Message, error) {
			invoice := message.NewMessage("invoice-"+order.UUID, fmt.Appendf(nil, `{"order":%q}`, order.UUID))
			invoice.Metadata.Set("customer", order.Metadata.Get("customer"))
			return []*message.Message{invoice}, nil // the same id when the order comes again: one invoice
		})
	if err := router.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
