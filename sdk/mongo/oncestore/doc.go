// Package oncestore keeps the claims and marks of package exactlyonce in a collection of a MongoDB
// database, and lets an effect's writes to the same cluster be committed together with its mark.
//
// Each record is a document:
//
//	{_id: "billing/orders.created 0197…", chain: "5F3K…", n: 1, kind: "claim", owner: "X2PL…",
//	 lease_ms: 30000, beat: 4, released: false, head: 2, expireAt: Date}
//	{_id: "billing/orders.created 0197… 5F3K… 2", chain: "5F3K…", n: 2, kind: "done", owner: "X2PL…", …}
//
// The first document of an id has the scope and the id for its _id, each other also the chain and
// its number. Every read and write names one _id and nothing else, so it is a point operation, and
// goes to one shard of a collection that is sharded by _id (hashed). The unique insert is the only
// compare-and-set.
//
// Writes and reads have the concern majority; reads go to the primary. Transactions need a replica
// set or a sharded cluster.
package oncestore
