// Package sluicewatermill lets applications that use Watermill publish to Sluice and consume from it.
//
//	client, err := sluice.Dial(ctx, "http://127.0.0.1:7070")
//	publisher := sluicewatermill.NewPublisher(client, sluicewatermill.PublisherConfig{})
//	subscriber := sluicewatermill.NewSubscriber(client, sluicewatermill.SubscriberConfig{Group: "billing"}, logger)
//
// A message's UUID is the event's id, so that publishing a message again stores nothing twice; its metadata are the event's
// headers. The client stays the caller's: close it after what uses it.
package sluicewatermill
