// Package capture publishes the changes of a MongoDB collection: a Capture follows the collection's
// change stream and publishes every insert, update, replace and delete as an event, keyed by the
// document's _id. The application that writes the collection does not take part.
//
// # Order, and each change once
//
// Changes of one document are published in the order of the stream: the next one once the one
// before it is in the log, or is refused for good. An event's id is a digest of the change's resume
// token, so a change that is published again is a duplicate, or a conflict if its update was looked
// up again and the document has changed since. Both mean that the log has the change.
//
// A capture saves its place, a resume token, after the changes before it are in the log. If a
// sidecar is killed in between, the next one publishes some changes again, and the log knows their
// ids.
//
// # One sidecar at a time
//
// Sidecars on a shared log announce a capture on the roster as if it were a group, and rendezvous
// hashing chooses the one that captures. The others wait. While two sidecars have not seen each
// other yet, both capture: each follows the stream in its order, so of two changes of a document
// the first in the stream is the first in the log. A save names the number of the save before it,
// so only one of two saves succeeds, and the other sidecar goes on from the saved place. A sidecar
// checks before each call that its life is valid. So a sidecar that was paused publishes at most
// one call whose ids the log may have forgotten.
//
// # Reading the whole collection
//
// A re-read notes a place in the stream, publishes all documents as they are, in the order of _id,
// and then follows the stream from the noted place. Changes made meanwhile follow, so each
// document's last event is of its last change. Until then, a change may follow a snapshot that is
// newer. That a re-read is asked for is saved with the place, as is its progress, so any sidecar of
// the log can be asked.
package capture
