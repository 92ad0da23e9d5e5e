// Package dispatch decides which member of a consumer group gets which event. A [Dispatcher] has the
// events that were fetched and are not settled, and the members with their windows; a [Partition]
// has the group's progress in one partition of the topic. It calls neither the log nor a goroutine:
// its caller holds a lock, fetches, saves and sends.
//
//	          fetch                assign, save, send            ack
//	log ────────────▶ ready ─────────────────────▶ in flight ─────────▶ settled
//	          ▲  │ an earlier event of              │ deadline, nack,      ▲
//	          │  ▼ its key is not settled           │ connection closed    │
//	        waiting         ready / delayed ◀───────┤                      │
//	                                                └── attempts used up: dead letter
package dispatch
