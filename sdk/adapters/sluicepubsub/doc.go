// Package sluicepubsub opens Sluice's topics as those of gocloud.dev/pubsub, the Go Cloud Development Kit.
//
//	topic := sluicepubsub.OpenTopic(client, "orders.created", nil)
//	subscription := sluicepubsub.OpenSubscription(client, "orders.created", "billing", nil)
//
// The client stays the caller's: close it after them.
//
// # URLs
//
// pubsub.OpenTopic and pubsub.OpenSubscription take the scheme "sluice". The host is the sidecar, 127.0.0.1:7070 where there is
// none, the path is the topic:
//
//	sluice:///orders.created
//	sluice://127.0.0.1:7070/orders.created?group=billing&from=earliest
//
// # Messages
//
// A message's metadata are the event's headers. A body that is compact JSON is the event's payload as JSON, any other body
// comes back byte for byte, too. Message.BeforeSend sets what else an event has, its key for example, and what a received event
// has is told by Message.As.
//
// # As
//
//   - Topic and Subscription: *sluice.Client
//   - Message: *wire.Delivery; Message.BeforeSend: *sluice.Event; Message.AfterSend: *sluice.Receipt
//   - errors: *sluice.Error
package sluicepubsub
