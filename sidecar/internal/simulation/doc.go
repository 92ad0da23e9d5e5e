// Package simulation runs plans of whole sidecars on a model of a replica set in memory, all in one
// bubble of virtual time, and compares what applications saw with the promises of the design. It
// has only tests.
//
// A [plan] has a topology, what applications publish and consume, and the faults meanwhile. A plan
// is made from a seed, or read from a JSON document that an earlier run has recorded. A run gives a
// history: every request of the applications and its answer, in their order, and the log's content
// in the end. The rules of the checker know only the history, never the state inside a sidecar.
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
// Some topics expire or are compacted while a plan runs. The checker recognizes a removed event by
// its stub, which stays for a day. If a plan has a rest, all sidecars stop once everything is
// settled, for longer than a day, and then continue.
//
// Special plans redrive and discard dead letters while everything continues (redrive_test.go).
// Redriven events have their own rules. An event that was redriven or discarded does not count as
// lost, like an acked one.
//
// In some plans sidecars capture a collection (captures_test.go): each change of a document is
// published once, in the order of the document, whichever sidecar captures.
//
// In some plans publishers schedule events for later, and cancel some of them (later_test.go). No
// event is delivered before it is due by the clocks of the sidecars. No event is delivered after a
// cancellation while nobody was publishing it.
//
// Random plans draw faults one by one, and half of them also in combinations that hurt together
// (combination_test.go). Weaknesses show how often plans find a mistake: a weakness is a deliberate
// mistake that a test adds to a part of the product.
//
// testdata/fixed has plans that once broke a promise, with the reason. testdata/planted has plans
// that find a weakness which a test puts into the log or the groups; testdata/seldom those that do so in few of their runs.
package simulation
