// Package simulation runs schedules of whole sidecars on a replica set that is a model in memory,
// all in one bubble of virtual time, and holds what applications saw against the promises of the
// design. It has tests alone.
//
// A schedule is a [plan]: a topology, what applications publish and consume, and the faults
// meanwhile. A plan is made from a seed, or read from a JSON document that an earlier run has
// recorded. A run gives a history: every request of the applications and its answer, in their
// order, and the log's content in the end. The rules of the checker know the history alone, never
// the inside of a sidecar.
//
//	seed ──▶ plan ──▶ run: applications ── sidecars ── replica set ──▶ history ──▶ rules ──▶ violations
//	          ▲                faults ──────┴──────────────┘                                     │
//	testdata ─┘◀─────────────────────────── shrunk while the violation stays ◀───────────────────┘
//
// A sidecar has, as the program assembles them: the log in MongoDB by the real driver, the spool on
// an embedded log whose file system is in memory, writer, publisher, groups, roster, tails, waker,
// sweeper, the scheduler, the drainer of an outbox and captures. It has no listeners, control plane,
// quotas and tracing. An application calls the publisher and the groups directly, as the gateway
// does for a connection. A sidecar that is killed loses all of its connections at once and
// everything but its spool.
//
// Some topics expire or are compacted while a plan runs. A removed event is known from its stub,
// which stays for a day. Where a plan rests, all sidecars stop once everything is settled, for
// longer than a day, and go on.
//
// Plans of their own have dead letters redriven and discarded while everything goes on
// (redrive_test.go). Redriven events have rules of their own. An event that was redriven or
// discarded is no silent drop, as an acked one is none.
//
// In some plans sidecars capture a collection (captures_test.go): each change of a document is
// published once, in the order of the document, whichever sidecar captures.
//
// In some plans publishers schedule events for later, and take some of them back (later_test.go).
// No event comes before it is due by the clocks of the sidecars. None comes after it was cancelled
// while nobody was publishing it.
//
// Random plans draw faults one by one, and half of them also in combinations that hurt together
// (combination_test.go). Weaknesses tell how often plans find a mistake: they are ways to build the
// product wrong, which tests put around its parts.
//
// testdata/fixed has plans that once broke a promise, with the reason. testdata/planted has plans
// that find a weakness which a test puts into the log or the groups.
package simulation
