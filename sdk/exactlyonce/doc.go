// Package exactlyonce keeps an event's effect from happening twice, although the event is delivered
// more than once: claim the event's id, run the effect, mark it. Two consumers do not run the same
// id at once, and the table below says, for each form, what happens after a crash or a pause.
//
//	h, err := exactlyonce.New(store, exactlyonce.Options{Scope: exactlyonce.Scope("orders.created", "billing")})
//	…
//	sub, err := client.Subscribe(ctx, "orders.created", "billing", exactlyonce.Once(h, charge))
//
// [Once], [OnceClaimed] and [OnceTx] are the forms below as handlers of a subscription. A [Store]
// holds the claims and marks: [Memory] those of one process, package sdk/mongo/oncestore those of
// any number of processes in MongoDB.
//
// # What each form guarantees
//
// At-least-once delivery alone cannot make an effect in another system happen exactly once: a crash
// between the effect and its mark leaves one without the other. The forms differ in what such a
// crash costs.
//
//   - [Handler.Do]: at most one effect of an id runs at a time (unless a process is paused for
//     longer than its lease), and none is begun after it is marked. A crash after the effect and
//     before its mark lets it run again.
//   - [Handler.DoClaimed]: the same; the effect also gets its claim's fence, with which it can make
//     its own write conditional. If that write is idempotent by the event's id, then it is there
//     once, also after a crash or a pause.
//   - [Handler.DoTx]: the effect's writes and the mark are one transaction. The writes are there
//     exactly once, whatever crashes. It needs a store with transactions: MongoDB as a replica set
//     or a sharded cluster.
//   - [Handler.Seen] and [Handler.Mark], or a [DedupeStore]: the effect does not run after it is
//     marked; two consumers may run it at once.
//
// The points at which a process may die, and how often the effect is run to its end and is there,
// once the event has been delivered again:
//
//	the process dies            Seen, Mark   Do        DoClaimed           DoTx
//	before the claim            once         once      once                once
//	after the claim             once         once *    once *              once *
//	during the effect           part + once  part + once *  part + once *  once *
//	after the effect,           twice        twice *   twice, the same     once *
//	  before the mark                                  write *
//	after the mark,             once         once      once                once
//	  before the ack
//	paused beyond its lease     (no lease)   twice     twice, the later    once
//	  in the effect                                    claim's write stays
//
// *: the next consumer has to wait until the lease is over.
//
// "Once" is for as long as a mark is kept (Options.TTL, 7 days): an event that comes again after
// that has its effect again.
//
// # The lease
//
// A claim holds for Options.Lease and is extended while the effect runs, so the lease bounds how
// long others wait after a crash, not how long an effect may take. No clock is compared with
// another machine's. A process that takes a claim over must have seen it unchanged for the whole
// lease on its own monotonic clock. The owner counts from before it wrote the claim or its last
// extension, and gives up when nine tenths of the lease have passed. So an owner that runs gives up
// before anybody else begins: its effect's context ends with [ErrLeaseLost] as its cause.
//
// An owner that does not run, because its process or its machine was paused, finds out only when it
// wakes up, and may be in the middle of its effect. It cannot mark then (nor commit, in DoTx),
// because marks and claims compete for the same slots:
//
//	1 claim A ── 2 claim B ── 3 done       A was paused, and B took over: A's mark finds 2 taken, and A gets ErrFenced
//	1 claim A ── 2 done                    A was paused, and nobody took over: its mark is as good as ever
//
// Each id has a chain of records, numbered from 1. A claim and the mark of the claim before it want
// the same number, and the store's unique insert gives it to one of them. That is the only thing
// that has to be atomic: no update depends on what is there, so the chains are right also on stores
// whose read-modify-write is not. A claim's number is its fence.
//
// # Failures
//
// An effect that returns an error, or panics, gives its claim up: the next delivery runs it at
// once. A request to the store without an answer is repeated, for Options.Timeout, until its
// outcome is known. Records have a random owner, so a process recognizes its own claim or mark. If
// it stays unknown whether the mark is stored, Do returns [ErrNotMarked], and the event should be
// delivered again: it is then done, or its effect runs once more.
//
// Each failed try of an id adds a record to its chain, and the next one extends the time of all of
// them. This does not matter for events that are given up after some attempts, as Sluice does with
// dead letters.
package exactlyonce
