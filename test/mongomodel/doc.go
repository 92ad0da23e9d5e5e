// Package mongomodel is a model of a MongoDB replica set, for tests: a few members in memory that
// the real driver talks to, whose elections, partitions, lost answers and lost writes happen when a
// test says so. It runs within a testing/synctest bubble, where an hour of it takes no time, and as
// a program of its own (cmd/mongomodel) for tests of whole programs.
//
// # What is modelled
//
// Each member has an oplog. A primary's entries reach the others at once or after a delay; an entry
// of the primary's own term that a majority has is committed, and majority reads see committed
// entries alone. Terms and elections are as in the server's protocol: the newest oplog that a
// majority can see wins. A primary that was cut off goes on answering for some time; its writes of
// that time are rolled back when it is joined again, and connections to it break. Write concerns
// are waited for as the server does, also by writes that did nothing; w beyond the number of
// members is code 100 and the write is there. Retryable writes are remembered with the oplog, so
// that a second one after a failover is answered and not executed. Causal sessions wait for their
// time. Transactions see a snapshot, conflict on documents and unique keys, live for a bounded time
// and end with their primary; plain writes wait for them. TTL indexes are swept in intervals.
// Tailable cursors wait for data and survive a stepdown. Change streams of one collection tell of
// committed changes, and are resumed by tokens as long as the oplog reaches back; their tokens are
// of another form than the server's.
//
// Package query has the meaning of filters, updates and pipelines; package store has collections
// and indexes.
//
// # What is left out
//
// Sharding, change streams of databases, images of documents before and after a change,
// authentication, collations, compression, chained replication, arbiters, votes, hidden members and
// catch-up of a new primary. The model has the commands, options and operators that Sluice and its
// tests use: any other is an error that names it, never a guess. A killed member keeps the writes
// that it has acknowledged, so w: 1 loses nothing by a kill alone, only by a rollback.
//
// # How to add a command
//
// Write its run function beside those like it and enter it in the table of admin.go with the
// options it reads. It runs with the set's lock held; [Set.wait] releases it meanwhile. Writes go
// through [call.write], reads through [call.view].
package mongomodel
