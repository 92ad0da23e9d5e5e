// Package outbox publishes what applications leave in a MongoDB collection: an
// application inserts a document in the transaction that also writes its own
// data, and a Drainer publishes it as an event under the document's id and
// marks it. The package knows documents, leases and the shape of an event; who
// publishes, where to, and under which limits, it does not know (Publisher).
//
// # Documents
//
// An application inserts
//
//	{_id, id?, topic, key?, headers?, tags?, caused_by?, payload, ts?, status: "pending"}
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
// A document that is refused for good (a bad field, a conflict, a schema, …)
// becomes "error" and lets those behind it pass. One that is refused for now
// (a rate, a pause, a store that is away, …) makes its topic wait for as long
// as the refusal says, counts no attempt, and nothing of its topic overtakes
// it. One whose refusal says neither (internal) makes those of its key wait, for
// longer each time, and becomes "error" after MaxAttempts.
//
// # Several drainers
//
// Every sidecar that is given the outbox drains a part of it. A document
// belongs to one of Shards shards by topic and key (or id); a shard has one
// drainer at a time, by a chain of epochs in the collection <outbox>_leases:
// the unique insert of the next epoch is the only compare-and-set, so it works
// where a read-modify-write is not atomic; see leases for the rules. A drainer
// gives a sign of life for all of its shards at once, four times in a lease.
//
// Documents are therefore not claimed one by one, which would take another two
// writes for each. Where somebody else did that, with status "claimed" and a
// lease_until, the claim is honoured until then and taken back afterwards.
//
// # Why nothing is lost, doubled or reordered
//
// A document is marked after its event is in the log, so it is published at least
// once. A crash between the two makes another drainer publish it again under
// the same id, which the log answers as a duplicate, with the seq of the first
// time: there is one event, as long as the id is remembered there.
//
// The same holds for a drainer that was paused in the middle of its work, past
// the end of its leases, and wakes up: before each call it looks at its leases,
// so it publishes at most the calls that it had begun. An event X of these is
// either published and marked by its successor, then X is a duplicate; or it
// is not, then the successor, which begins with what is pending, has published
// nothing that comes behind X in its key, and neither has the paused drainer,
// since a call has one event of a key (or the Publisher keeps their order): X is
// published in its place. Marking a document as done twice writes the same
// twice; an error is written to pending documents alone.
package outbox
