// Package outbox publishes what applications leave in a MongoDB collection: an application inserts
// a document in the transaction that also writes its own data, and a Drainer publishes it as an
// event under the document's id and marks it. The package knows documents, sidecars and the shape
// of an event; it does not know the way into the log and its limits (source.Publisher).
//
// # Documents
//
// An application inserts
//
//	{_id, id?, topic, key?, headers?, tags?, caused_by?, sid?, ttl_ms?, deliver_at?,
//	 payload | payload_json | payload_binary, ts?, after?, status: "pending"}
//
// and nothing else has to be there. The event's id is the field id, else _id: a
// string as it is, an ObjectId in hexadecimal digits, a UUID as its text, a
// whole number in decimal digits. ts is a date or milliseconds since the epoch.
// The payload is any BSON value; appendJSON says what becomes of it. A document
// ends as
//
//	{…, status: "done", done_at, seq, partition}
//	{…, status: "error", error, attempts, failed_at}    error is the code and the sentence
//
// with one update for each document, all of a batch in one command. One that
// failed and is tried again stays pending, with error, attempts and failed_at.
// Setting status to "pending" again is how an operator has a document tried
// once more; documents that are done may be removed at any time, by a TTL index
// on done_at for example. The collection gets two indexes, (status, ts, _id)
// for reading and (status, lease_until) for the claims below.
//
// # Order
//
// Documents of one topic and key are published in the order of (ts, _id) among
// those that are pending: a missing ts comes before all others, and _id decides
// where ts is the same. Reading goes by status, never by a position, so a
// document that becomes visible late, with an older ts, is published all the
// same, then. Documents without a key are published in about that order.
//
// A look at a large outbox takes several reads, and may find a document without
// the one before it, which has become visible when the look had passed its
// place. A document that names the one before it in after is held back then, as
// long as that is pending.
//
// # Following
//
// On a replica set a change stream wakes the drainer when documents become
// pending. It is a hint and nothing more: a look finds documents by their
// status. So a stream that breaks, or has lost its place in the oplog, costs no
// more than another look.
//
// A document that is refused for good (a bad field, a conflict, a schema, …)
// becomes "error", and the documents behind it go on. A document that is refused
// for now (a rate, a pause, a store that is away, a topic that is missing and may
// not be made, …) makes its topic wait for as long as the refusal says, and
// counts no attempt. After an internal error the documents of its key wait, for
// longer each time, and it becomes "error" after MaxAttempts. Package source
// decides which refusal is which.
//
// # Several drainers
//
// An outbox is drained into one log. A document in <outbox>_owner says which,
// and a sidecar of that log has written it lately: see ownership for the rules.
// A sidecar of another log is refused while that goes on, and takes the outbox
// over once it has stopped or was silent for its lease; one that loses the
// outbox drains nothing of it until it can take it back.
//
// All sidecars of the log that are given the outbox drain a part of it. A document belongs to one
// of Shards shards by topic and key (or id). The sidecars announce each other the outbox as a
// consumer group of a reserved topic, by the id in the owner's document, and rendezvous hashing
// gives each shard to one of those that are alive (package roster). Shards are not handed over: a
// sidecar that should have one begins, and one that should not stops with its next call. While two
// sidecars have not seen each other yet, both drain it. A sidecar that stops announces so once its
// last page is marked, and one that dies is missing once others have declared it dead.
//
// Documents are therefore not claimed one by one, which would take another two writes for each.
// Where another program did that, with status "claimed" and a lease_until, the claim is honoured
// until then and taken back afterwards.
//
// # Why nothing is lost, doubled or reordered
//
// A document is marked after its event is in the log, so it is published at least once. Another
// drainer publishes it again under the same id, which the log answers as a duplicate, with the seq
// of the first time. There is one event, as long as the log remembers the id. Marking a document as
// done twice writes the same twice; an error is written to pending documents alone.
//
// A drainer publishes an event Y that is behind X in its key only after it has heard that X is in
// the log, or has read that X is pending no more: a call has one event of a key (or the Publisher
// keeps their order), and what rests or is passed over holds up those behind it until everything is
// read again. So X is before Y in the log for any number of drainers of their shard: order needs no
// epoch, and neither does a crash between publishing and marking. This leaves two things that do
// need to know who else is there:
//
//   - Another log does not know the ids of this one, so two logs at a time
//     would both get the documents. Ownership is exclusive for that.
//   - A drainer that was paused for longer than ids are remembered would
//     publish its whole page again. Before each call it looks whether its
//     ownership and its life are valid still, so it is at most the calls that
//     it had begun.
//
// Where X is refused for good, Y goes on before the others have heard of that.
// So a drainer whose policy lets X pass, while that of the one before it did
// not, may publish X behind Y, as if an operator had it tried once more.
package outbox
