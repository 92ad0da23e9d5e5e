// Package group delivers a topic's events to consumer groups: members with
// windows, leases on events with deadlines, redelivery with backoff, dead
// letters, order by key, and progress that survives a kill. It reads the log,
// and must not know how members are connected or how events are published.
//
// A [Group] owns all partitions of one (topic, group). Its state is guarded by
// one mutex and moved on by turns: a turn fetches what members have room for,
// assigns it, saves the progress that came about since the last turn in one
// write, and only then sends deliveries. Acks are answered once that write is
// synced, beside the turns. So an ack that was answered survives a power cut, an
// attempt that a client has seen survives a kill, no delivery waits for the
// disk, and everything that happens during a sync shares the next one.
//
//	          fetch                assign, save, send            ack
//	log ────────────▶ ready ─────────────────────▶ in flight ─────────▶ settled
//	          ▲  │ an earlier event of              │ deadline, nack,      ▲
//	          │  ▼ its key is not settled           │ connection closed    │
//	        waiting         ready / delayed ◀───────┤                      │
//	                                                └── attempts used up: dead letter
//
// A turn runs while there is something to do and leaves no goroutine behind: a
// group that waits costs a timer at the most. Whatever can let the group get on
// wakes it, and a turn wakes the next one only if that one gets on for sure;
// what has failed is tried again by the timer.
//
// Locks are taken in this order: Manager.mu, Member.send, Group.mu, and then
// those of the sink, the pacer, the tail and the worker, which call back into
// nothing.
package group
