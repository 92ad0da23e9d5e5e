// Package simulation runs schedules of whole sidecars on a replica set that is a model in memory,
// all in one bubble of virtual time, and holds what applications saw against the promises of the
// design. It has tests alone.
//
// A schedule is a [plan]: a topology, what applications publish and consume, and what goes wrong
// meanwhile. It is made from a seed, or read from a JSON document that an earlier run has recorded.
// A run gives a history: what each application asked and was told, in the order in which it was,
// and what the log held in the end. The rules of the checker know the history alone, never the
// inside of a sidecar.
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
// Some topics expire or are compacted while a plan runs. What was removed is known from its stub,
// which stays for a day. Where a plan rests, all sidecars are stopped for longer than that once
// everything is settled, and go on.
//
// Plans of their own have dead letters redriven and discarded while everything goes on
// (redrive_test.go): what comes of that has rules of its own, and an event that was redriven or
// discarded is no more a silent drop than one that was acked.
//
// In some plans sidecars capture a collection (captures_test.go): each change of a document is
// published once, in the order of the document, whichever sidecar captures.
//
// In some plans publishers schedule events for later, and take some of them back (later_test.go).
// None comes before it is due by the clocks of the sidecars, or once it was cancelled while nobody
// was publishing it.
//
// Random plans draw faults one by one, and half of them also in combinations that hurt together
// (combination_test.go). How often they find what is wrong is known from weaknesses: ways to build
// the product wrong, which tests put around its parts.
//
// testdata/fixed has plans that once broke a promise, with the reason; testdata/planted those that
// find a weakness which a test puts into the log or the groups.
package simulation
