// Package outbox publishes documents that applications insert into a MongoDB collection: an
// application inserts a document in the transaction that also writes its own data, and a Drainer
// publishes it as an event under the document's id and marks it.
//
// # Documents
//
// An application inserts
//
//	{_id, id?, topic, key?, headers?, tags?, caused_by?, sid?, ttl_ms?, deliver_at?,
//	 payload | payload_json | payload_binary, ts?, after?, status: "pending"}
//
// and the collection needs nothing else. The event's id is the field id, else _id: a string as it
// is, an ObjectId in hexadecimal digits, a UUID as its text, a whole number in decimal digits. ts
// is a date or milliseconds since the epoch. The payload is any BSON value, which appendJSON
// converts. A document ends as
//
//	{…, status: "done", done_at, seq, partition}
//	{…, status: "error", error, attempts, failed_at}    error is the code and the sentence
//
// with one update for each document, all of a batch in one command. A document that failed and is
// tried again stays pending, with error, attempts and failed_at. An operator sets status to
// "pending" to retry a document. Documents that are done may be removed at any time, by a TTL index
// on done_at for example. The collection gets the index (status, ts, _id).
//
// # Order
//
// Documents of one topic and key are published in the order of (ts, _id) among those that are
// pending: a missing ts comes before all others, and _id decides where ts is the same. Reading goes
// by status, never by a position. So a document that becomes visible late, with an older ts, is
// still published then. Documents without a key are published in about that order.
//
// A look at a large outbox takes several reads, and may find a document without the one before it:
// that became visible after the look had passed its place. The drainer then holds back a document
// that names the one before it in after, as long as that one is pending.
//
// # Following
//
// On a replica set a change stream wakes the drainer when documents become pending. A change is
// only a hint: a look finds documents by their status. So a stream that breaks, or has lost its
// place in the oplog, costs no more than another look.
//
// A document that is refused for good (a bad field, a conflict, a schema, …) becomes "error", and
// the documents behind it go on. A document that is refused for now (a rate, a pause, a store that
// is away, a topic that is missing and may not be made, …) makes its topic wait for as long as the
// refusal says, and counts no attempt. After an internal error the documents of its key wait, for
// longer each time, and it becomes "error" after maxAttempts. Package source decides which refusal
// is which.
//
// # Several drainers
//
// An outbox is drained into one log. A document in <outbox>_owner names that log, and the log's
// sidecars renew it: see ownership for the rules. A sidecar of another log is refused while they
// do, and takes the outbox over once they have stopped or were silent for their lease. A sidecar
// that loses the outbox drains nothing of it until it can take it back.
//
// All sidecars of the log that are configured for the outbox drain a part of it. A document belongs
// to one of Shards shards by topic and key (or id). The sidecars announce the outbox on the roster
// as a consumer group of a reserved topic, by the id in the owner's document, and rendezvous
// hashing gives each shard to one of the live sidecars (package roster). Shards are not handed
// over: a sidecar that gets a shard begins at once, and a sidecar that loses it stops with its next
// call. While two sidecars have not seen each other yet, both drain it. A sidecar that stops
// announces so once its last page is marked. Others miss a dead sidecar once they have declared it
// dead.
//
// So drainers do not claim documents one by one, which would take another two writes for each.
//
// # Why nothing is lost, doubled or reordered
//
// A document is marked after its event is in the log, so it is published at least once. Another
// drainer publishes it again under the same id, which the log answers as a duplicate, with the seq
// of the first time. There is one event, as long as the log remembers the id. Marking a document as
// done twice writes the same twice; errors are written only to pending documents.
//
// A drainer publishes an event Y that is behind X in its key only after it has heard that X is in
// the log, or has read that X is no longer pending: a call has one event of a key, and a document
// that rests or is passed over holds up those behind it until everything is read again. So X is
// before Y in the log for any number of drainers of their shard: order needs no epoch, and neither
// does a crash between publishing and marking. Two dangers remain that depend on other drainers:
//
//   - Another log does not know the ids of this one, so two logs at a time would both get the
//     documents. Ownership is exclusive for that.
//   - A drainer that was paused for longer than ids are remembered would publish its whole page
//     again. Before each call it checks that its ownership and its life are still valid, so it
//     repeats at most the calls that it had begun.
//
// Where X is refused for good, Y goes on before the other drainers know. So a drainer whose policy
// lets X pass, while that of the drainer before it did not, may publish X behind Y, as if an
// operator had retried X.
package outbox
