// Package group delivers a topic's events to consumer groups: members with windows, leases on
// events with deadlines, redelivery with backoff, dead letters, order by key, and progress that
// survives a kill.
//
// A [Group] is the members of one (topic, group) that are connected to this sidecar, and the
// partitions that this sidecar delivers to them from. Its state is guarded by one mutex and moved
// on by three workers. Package ownership decides which partitions to take; package dispatch has the
// events that were fetched, and assigns them to members; the saver has the progress on its way to
// the store, and the callers that wait for it.
//
// Turns deliver: a turn fetches the events that members have room for, assigns them, saves all
// progress since the last turn in one write, and only then sends deliveries. Acks are answered once
// that write is synced, beside the turns. So an ack that was answered survives a power cut, an
// attempt that a client has seen survives a kill, no delivery waits for the disk, and everything
// that happens during a sync shares the next one.
//
// With Config.Reach, turns go on during a save, and first deliveries need none where an earlier save
// reached their events (dispatch/reach.go).
//
// A turn runs while there is something to do and leaves no goroutine behind: a group that waits
// costs a timer at the most. Each event that gives the group work wakes it, and a turn wakes the
// next one only if that one has work for sure; the timer repeats calls that have failed.
//
// Balances decide which partitions this sidecar has: rendezvous hashing divides them among the
// sidecars that have members of the group. Balances ask the store only if a partition is missing or
// in doubt.
//
// On an embedded log all of this holds with a roster of one: every earlier owner is dead, and all
// partitions are this sidecar's.
//
// Three rules keep two sidecars from delivering the same events at once:
//
//   - The store refuses the progress of an epoch that is not the last one (fenced), and a turn
//     sends only what it has saved, or what an earlier save reached. The next owner inherits all that
//     was saved before. An epoch that another sidecar makes for a seek stays with its owner.
//   - When events are sent, the roster must still be valid ([roster.Roster]): others
//     take over only after it has become invalid for certain. While it is invalid, nothing is
//     delivered, and no deadline or backoff ends; acks are still saved, for the store knows whether
//     they count.
//   - A life that was declared dead is over. Partitions that it has are frozen until the sidecar
//     has taken their next epochs as its next life. If it can, no other sidecar had them in
//     between, and it goes on where it was, with the events in flight; if not, it abandons them. A
//     life that was silent, and was not declared dead, goes on as it was; deadlines begin where
//     they were.
//
// An ack whose save was refused is answered with an error; once a partition is abandoned, nothing
// of it is in flight here, and acks of it settle nothing.
//
// Signals between sidecars (Config.Moved, the roster's) only save time. Without them the roster
// looks around now and then, groups ask again for missing partitions after a while, and once in a
// lease one group asks whether its partitions are still its own; a fenced group learns of it with
// its next save.
//
// Locks are taken in this order: Group.moving, Manager.mu, Member.send, Group.mu, and then those of
// the sink, the pacer, the tail, the roster and the workers, which call back into nothing.
package group
