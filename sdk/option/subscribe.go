// Package option has the options of subscriptions and publishers.
//
//	client.Subscribe(ctx, "orders", "billing", bill, option.FromEarliest(), option.Concurrency(8))
package option

import (
	"context"
	"maps"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/settings"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Subscribe sets something of a subscription. Unset fields have the values of the topic's policy.
type Subscribe func(*settings.Subscribe)

// FromEarliest starts at the topic's first event, if the group has no cursor yet. Without an option
// the group starts with the events that are published from now on.
func FromEarliest() Subscribe {
	return start(wire.SubscribeOptions{From: wire.FromEarliest})
}

// FromTime starts at the first event of that time or later, if the group has no cursor yet.
func FromTime(t time.Time) Subscribe {
	ms := t.UnixMilli()
	return start(wire.SubscribeOptions{From: wire.FromTS, TS: &ms})
}

// AfterID starts behind the event with that id, if the group has no cursor yet.
func AfterID(id string) Subscribe {
	return start(wire.SubscribeOptions{From: wire.FromAfterID, AfterID: id})
}

// FromPositions starts right behind these seqs of the topic's partitions, and with the first event
// of partitions that are not named, if the group has no cursor yet. If retention has removed the
// event behind one of the seqs, the sidecar refuses the subscription with the code out_of_range.
func FromPositions(positions map[int]uint64) Subscribe {
	return start(wire.SubscribeOptions{From: wire.FromPositions, Positions: maps.Clone(positions)})
}

// start sets where a subscription starts, in place of what an option before it said.
func start(at wire.SubscribeOptions) Subscribe {
	return func(c *settings.Subscribe) {
		c.Wire.From, c.Wire.TS, c.Wire.AfterID, c.Wire.Positions = at.From, at.TS, at.AfterID, at.Positions
	}
}

// EndOnGap ends a subscription without a group that cannot go on right behind the last events that
// it got, because retention has removed some or it had no connection for half a day:
// [sluice.Subscription.Err] has the code out_of_range. Without it the subscription goes on with the
// events that are left. A consumer that keeps a state made from the events then reads the latest
// events, or all of them.
func EndOnGap() Subscribe { return func(c *settings.Subscribe) { c.EndOnGap = true } }

// Concurrency lets n handlers run at a time (1). Events of one key are still handled one after the
// other.
func Concurrency(n int) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(n >= 1, "Concurrency(%d): at least 1 handler runs", n)
		c.Concurrency = n
	}
}

// MaxInflight bounds the events that are with this subscription and not settled.
func MaxInflight(n int) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(n >= 1, "MaxInflight(%d): at least 1 event is in flight", n)
		c.Wire.MaxInflight = &n
	}
}

// AckTimeout says after which time without a sign of life an event is delivered to another
// consumer. It is extended for as long as a handler runs, so it need not be as long as the handler
// takes.
func AckTimeout(d time.Duration) Subscribe {
	ms := d.Milliseconds()
	return func(c *settings.Subscribe) {
		c.Need(ms >= 1, "AckTimeout(%v): at least 1ms", d)
		c.Wire.AckTimeoutMS = &ms
	}
}

// MaxExtension bounds how long the deadline of an event is extended (1 h): after that it goes to
// another consumer, though a handler of it still runs. 0 extends nothing. Where such an event, left
// unsettled by [ManualAck], comes to this subscription again, it is handled again.
func MaxExtension(d time.Duration) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(d >= 0, "MaxExtension(%v): 0 or more", d)
		c.MaxExtension = d
	}
}

// RetryFor bounds how long a handler that fails is called again for the same event before the event
// is given back, which counts an attempt (5 min, or 0 with [MaxAttempts]). 0 gives it back after
// the first error.
func RetryFor(d time.Duration) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(d >= 0, "RetryFor(%v): 0 or more", d)
		c.RetryFor = &d
	}
}

// MaxAttempts says after how many deliveries an event becomes a dead letter. Each error of the
// handler gives the event back, so that n is how often the handler is called; with [RetryFor]
// beside it, the handler is called again within a delivery, too.
func MaxAttempts(n int) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(n >= 1, "MaxAttempts(%d): at least 1 delivery", n)
		c.Wire.MaxAttempts = &n
	}
}

// Unordered lets events of one key be with several consumers of the group at a time. Within this
// subscription they are still handled one after the other.
func Unordered() Subscribe {
	ordered := false
	return func(c *settings.Subscribe) { c.Wire.Ordered = &ordered }
}

// RememberAcks makes the sidecar remember acked ids for that long (0: the default of 7 days), so
// that an id that was acked is not delivered to the group again.
func RememberAcks(ttl time.Duration) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(ttl >= 0, "RememberAcks(%v): 0 or more", ttl)
		c.Wire.ExactlyOnce = true
		if ms := ttl.Milliseconds(); ms > 0 {
			c.Wire.DedupeTTLMS = &ms
		}
	}
}

// WithFilter delivers only events that the filter lets pass.
func WithFilter(f wire.Filter) Subscribe {
	return func(c *settings.Subscribe) { c.Wire.Filter = &f }
}

// ManualAck settles nothing when a handler returns nil: the message is to be settled with
// [sluice.Message.Ack] or [sluice.Message.Nack], then or later, by any goroutine. Until then its
// deadline is extended.
func ManualAck() Subscribe { return func(c *settings.Subscribe) { c.Manual = true } }

// MaxBytes bounds the size of the events that wait for handlers (64 MiB). At the bound the
// connection is not read, which slows the sidecar down.
func MaxBytes(n int) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(n >= 1, "MaxBytes(%d): at least 1", n)
		c.MaxBytes = n
	}
}

// OnAssigned is called when partitions of the topic become this subscription's own, before any
// event of them is handled: the place to load state that is kept by partition. Only subscriptions
// with a group have partitions of their own.
//
// OnAssigned and [OnRevoked] are called one at a time, in order. Their context does not end with
// [sluice.Subscription.Stop].
func OnAssigned(f func(ctx context.Context, partitions []int)) Subscribe {
	return func(c *settings.Subscribe) { c.Wire.Rebalance, c.Assigned = true, f }
}

// OnRevoked is called when partitions are not this subscription's own any more, also because the
// connection broke or the subscription ends, after the last handler of an event of them has
// returned. They may be another consumer's already: the writes of f must allow for that.
func OnRevoked(f func(ctx context.Context, partitions []int)) Subscribe {
	return func(c *settings.Subscribe) { c.Wire.Rebalance, c.Revoked = true, f }
}

// Batch bounds the batches of [sluice.Client.SubscribeBatch]: n events (100), and how long the
// first of them waits for others (100 ms). They are smaller where fewer may be in flight
// ([MaxInflight], [MaxBytes]).
func Batch(n int, wait time.Duration) Subscribe {
	return func(c *settings.Subscribe) {
		c.Need(n >= 1 && wait >= 0, "Batch(%d, %v): at least 1 event, and a wait of 0 or more", n, wait)
		c.Batch, c.BatchWait = n, wait
	}
}
