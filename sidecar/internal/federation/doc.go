// Package federation answers replays of a whole fleet: it asks one sidecar for each distinct store
// and every sidecar for its spool, and merges their events by (ts, id). It knows how sidecars ask
// each other; it must not know how a store keeps its events, nor how an answer is written to a
// client.
//
// # Nothing is missed
//
// An event is in a spool until it is in the store, and at some moment in both. All spools are
// opened first, and each freezes a snapshot before it answers; only when all of them have answered
// are the stores opened. So an event that was accepted before the replay began is in a snapshot, or
// it was drained before that was taken, and then the store has it when it is read later.
//
// A store's part that fails midway is opened again, at the same sidecar or at another one on that
// store, behind the last complete event. That is later still, so the argument holds, unless the
// events did not come in order: then the events behind the last one are not all, and the answer
// fails. A spool's part cannot be opened elsewhere, nor again, since events that left it meanwhile
// may be where the store has been read already: if its sidecar dies midway, the answer fails
// visibly.
//
// A part that cannot be asked is named. The answer is refused, or with Partial goes without it, and
// a later page asks the missing part from where it was asked last. Pages of a partial answer lack
// only the events that left a missing spool between two of these pages.
//
// # Each event comes once
//
// The merged order is (ts, id), so copies at one place meet there, and the store's counts before a
// spool's. Copies at different places (an id that was published twice, through sidecars of
// different stores) do not: the first in the order counts. A stream remembers the ids that it has
// handed out, exactly while they are few, then as a filter that may suspect but never overlooks
// one. A suspect, and on a later page every event, is looked up in the other parts: it is left out
// if one of them holds its id at a place that was handed out before. The exception is an event of a
// part that is missing now: over the pages of a partial answer a copy of it may come as well.
package federation
