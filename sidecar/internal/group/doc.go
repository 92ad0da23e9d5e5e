// Package group delivers a topic's events to consumer groups: members with
// windows, leases on events with deadlines, redelivery with backoff, dead
// letters, order by key, and progress that survives a kill. It reads the log,
// and must not know how members are connected or how events are published.
//
// A [Group] is the members of one (topic, group) that are connected to this
// sidecar, and the partitions that this sidecar delivers to them from. Its
// state is guarded by one mutex and moved on by three workers. Its ownership has
// the partitions, and decides which of them to take; its dispatch has the events
// that were fetched, and decides which member is given which; its saver has what
// is on its way to the store, and who waits for that.
//
// Turns deliver: a turn fetches what members have room for, assigns it, saves
// the progress that came about since the last turn in one write, and only then
// sends deliveries. Acks are answered once that write is synced, beside the
// turns. So an ack that was answered survives a power cut, an attempt that a
// client has seen survives a kill, no delivery waits for the disk, and
// everything that happens during a sync shares the next one.
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
// Balances decide which partitions this sidecar has: those that rendezvous
// hashing gives it among the sidecars that have members of the group. They ask
// the store only if something is missing or in doubt.
//
//	             the last epoch is released,
//	             or its owner is dead: take the next
//	foreign ─────────────────────────────────────▶ owned ◀──┐
//	 ▲  ▲                                          │  │ ▲   │ back after all
//	 │  │    a later epoch was taken by somebody   │  │ └───┤
//	 │  └──────────── abandoned, unsaved ◀─────────┘  ▼     │
//	 │                                             draining ┘  somebody else's
//	 │ saved with Released                            │        turn: nothing new
//	 └──────────────────────────── leaving ◀──────────┘        is delivered
//	                                  nothing in flight, or DrainWait is over:
//	                                  what is left goes back uncounted
//
// On an embedded log all of this holds with a roster of one: whatever was there
// before is dead, and everything is this sidecar's.
//
// What keeps two sidecars from delivering the same events at once:
//
//   - The store refuses the progress of an epoch that is not the last one
//     (fenced), and a turn sends only what it has saved. The next owner
//     inherits all that was saved before.
//   - Between that save and the sending, the roster must still be valid
//     ([roster.Roster]): others wait until it cannot be any more before they
//     take over. While it is not, nothing is delivered, and time moves nothing
//     on; acks are still saved, for the store knows whether they count.
//   - A life that was declared dead is over. Partitions that it has are frozen
//     until the sidecar has taken their next epochs as its next life. If it can,
//     nobody had them in between, and it goes on where it was, with what is in
//     flight; if not, it abandons them. A life that was silent, and was not
//     declared dead, goes on as it was; deadlines begin where they were.
//
// An ack whose save was refused is answered with an error; once a partition is
// abandoned, nothing of it is in flight here, and acks of it settle nothing.
//
// Signals between sidecars (Config.Moved, the roster's) only make things quick.
// Without them the roster looks around now and then, missing partitions are
// asked for again after a while, and once in a lease one group asks whether what
// it owns is still its own; one that is fenced learns of it with its next save.
//
// Locks are taken in this order: Group.moving, Manager.mu, Member.send,
// Group.mu, and then those of the sink, the pacer, the tail, the roster and the
// workers, which call back into nothing.
package group
