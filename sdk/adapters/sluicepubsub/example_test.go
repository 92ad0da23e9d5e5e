package sluicepubsub_test

import (
	"context"
	"fmt"
	"log"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/adapters/sluicepubsub"
	"gocloud.dev/pubsub"
)

func Example() {
	ctx := context.Background()
	client, err := sluice.Dial(ctx, "http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	topic := sluicepubsub.OpenTopic(client, "orders.created", &sluicepubsub.TopicOptions{KeyName: "customer"})
	defer topic.Shutdown(ctx)
	err = topic.Send(ctx, &pubsub.Message{Body: []byte(`{"order":17}`), Metadata: map[string]string{"customer": "ann"}})
	if err != nil {
		log.Fatal(err)
	}

	subscription := sluicepubsub.OpenSubscription(client, "orders.created", "billing", nil)
	defer subscription.Shutdown(ctx)
	for {
		m, err := subscription.Receive(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", m.Body)
		m.Ack()
	}
}
