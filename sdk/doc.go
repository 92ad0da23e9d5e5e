// Package sluice is Sluice's client for Go. It talks to the sidecar beside the application, by
// WebSocket and HTTP.
//
//	client, err := sluice.Dial(ctx, "http://127.0.0.1:7070")
//
//	// Publish: when this returns, the event is durable.
//	receipt, err := client.Publish(ctx, &sluice.Event{
//		Topic: "orders", Key: "customer-17", Payload: []byte(`{"order":1}`),
//	})
//
//	// Consume: nil acks; after an error the handler is called again.
//	sub, err := client.Subscribe(ctx, "orders", "billing", func(ctx context.Context, m *sluice.Message) error {
//		return bill(ctx, m.Event.Payload)
//	})
//
//	// Look back.
//	for event, err := range client.Replay(ctx, sluice.ReplayQuery{Topic: "orders"}) { … }
//
//	// Leave: finish what is in hand, then close.
//	err = client.Drain(ctx)
//
// # What the client does
//
// A [Client] outlives its connections. When one breaks, or the sidecar restarts, it connects again
// with backoff, authenticates, subscribes, and publishes again what was not answered.
// [WithConnectionHook] reports each loss and each new connection.
//
// Publishing ([Client.Publish], [Client.PublishBatch], and without waiting for each: [Publisher]):
// every event has an id before it is sent, so repeating a publish stores nothing twice. If the
// sidecar asks for time (rate_limited, overloaded, store_unavailable), the client waits and tries
// again, for as long as the context allows. Events of one key are logged in the order in which they
// were published.
//
// Consuming ([Client.Subscribe]): with a group, every event is delivered until a handler of the
// group succeeded, or it became a dead letter. A handler that fails is called again for 5 minutes
// before that counts as an attempt ([option.RetryFor]). Deadlines are extended while a handler
// runs. With [option.Concurrency] several handlers run, but those of one key one after the other.
// [Client.SubscribeBatch] hands over several events at a time. Without a group ("") a subscription
// gets every event, once, and nothing is remembered.
//
// A subscription is held up by [Subscription.Pause] (no handler starts until [Subscription.Resume])
// and ended in one of two ways:
//
//   - [Subscription.Stop], at once: the contexts of handlers end, and the sidecar delivers the
//     unsettled events to other consumers.
//   - [Subscription.Drain], in order: the subscription handles and acks the delivered events.
//
// [Subscription.Closed] tells when it has ended and no handler runs any more.
//
// Looking back ([Client.Replay], [Client.Export]): the history of a topic as an iterator.
//
// # Errors
//
// A refusal of the sidecar is an [*Error] with its code; a test for one is errors.Is(err,
// sluice.ErrTopicPaused). A subscription that is refused for good, after it had lost its
// connection, ends, and [Subscription.Err] says why. Errors of a closed client, subscription or
// publisher match [ErrClosed]. When a context ends before a publish is answered, the event may have
// been accepted: publish it again under the same id.
//
// # Connections and metrics
//
// [WithTLSConfig] and [WithDialer] change how the client connects. [WithObserver] is for metrics:
// it reports how long each operation takes.
//
// Options of a client are here ([WithToken]); those of subscriptions and publishers are in package
// option ([option.FromEarliest]).
//
// # Bounds
//
// A publisher holds 10,000 events or 32 MiB ([option.Window]), a subscription as many as the
// sidecar allows in flight ([option.MaxInflight]) or 64 MiB ([option.MaxBytes]). At the bound
// publishing waits, and a subscription's connection is not read. No goroutine is left when
// [Client.Close] or [Client.Drain] has returned.
//
// # Other packages
//
// Package table keeps the latest event of each key in memory, and follows the topic. Package
// snapshot keeps a consumer's state with its positions, so that it starts again with the events
// behind them.
//
// [Conn] is one connection and no more: nothing reconnects, nothing is sent again, the caller acks.
// It is for tools and load generators. Package admin asks a sidecar by HTTP about topics, groups
// and dead letters, and a control plane about policies and the fleet. The contract's types and
// codes are those of package wire. Package sluicetest runs a sidecar in memory, for tests of
// programs that use this package.
package sluice
