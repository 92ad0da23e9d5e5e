// Package federation answers replays of a whole fleet: it asks one sidecar for each distinct store
// and every sidecar for its spool, and merges their events by (ts, id).
//
// # Nothing is missed
//
// An event is in a spool until it is in the store, and at some moment in both. All spools are
// opened first, and each freezes a snapshot before it answers; only when all of them have answered
// are the stores opened. So an event that was accepted before the replay began is in a snapshot, or
// was drained before the snapshot was taken. In the second case the store has the event when it is
// read later.
//
// A store's part that fails midway is opened again, at the same sidecar or at another one on that
// store, behind the last complete event. That is even later, so the argument still holds. If the
// events did not come in order, the events after the last one are not all that are missing, and the
// answer fails. A spool's part cannot be opened elsewhere or again, since events that left it
// meanwhile may be where the store was already read. If its sidecar dies midway, the answer fails
// visibly.
//
// The answer names a part that cannot be asked. It is refused, or with Partial leaves the part out,
// and a later page asks the missing part from where it was last asked. Over all pages, a partial
// answer lacks only the events that left a missing spool between two pages.
//
// # Each event comes once
//
// The merged order is (ts, id), so copies with the same (ts, id) meet there, and the store's copy
// comes before a spool's. Copies with different ts (an id that was published twice, through
// sidecars of different stores) do not meet: the first in the order counts. A stream remembers the
// ids that it has handed out: exactly while they are few, then in a filter that may suspect a new
// id but never overlooks an old one. The stream looks up a suspect, and on a later page every
// event, in the other parts. It leaves the event out if one of them has the id at a point that was
// handed out before. The exception is an event of a part that is missing now: over the pages of a
// partial answer a copy of that event may come too.
package federation
