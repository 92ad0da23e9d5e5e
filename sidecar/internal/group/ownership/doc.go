// Package ownership decides which partitions of a topic a sidecar delivers from to a consumer group.
// A [Table] compares what the sidecar has with what is assigned here by the roster, and with the latest
// epochs of the store, which its caller reads and writes.
//
//	             the last epoch is released,
//	             or its owner is dead: take the next
//	foreign ─────────────────────────────────────▶ owned ◀──┐
//	 ▲  ▲                                          │  │ ▲   │ back after all
//	 │  │    another sidecar took a later epoch    │  │ └───┤
//	 │  └──────────── abandoned, unsaved ◀─────────┘  ▼     │
//	 │                                             draining ┘  another's turn:
//	 │ saved with Released                            │        nothing new
//	 └──────────────────────────── leaving ◀──────────┘        is delivered
//	                                  nothing in flight, or DrainWait is over:
//	                                  what is left goes back uncounted
package ownership
