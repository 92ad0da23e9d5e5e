// Package capture publishes what happens to the documents of a MongoDB collection: a Capture follows the collection's change
// stream and publishes every insert, update, replace and delete as an event, keyed by the document's _id. The application that
// writes the collection does not take part. The package knows documents, change streams and the shape of an event; it does
// not know the way into the log and its limits (source.Publisher).
//
// # Order, and each change once
//
// Changes of one document are published in the order of the stream: the next one once the one before it is in the log, or is
// refused for good. An event's id is a digest of the change's resume token, so whoever publishes a change again publishes a
// duplicate, or a conflict where an update was looked up again and the document is another one by now. Both mean that the log
// has the change.
//
// The place, a resume token, is saved after what is before it is in the log. A sidecar that is killed in between has the next
// one publish some changes again, and the log knows their ids.
//
// # One sidecar at a time
//
// Sidecars on a shared log announce a capture on the roster as if it were a group, and rendezvous hashing says which one of them
// captures. The others wait. While two sidecars have not seen each other yet, both capture: each goes through the stream in its
// order, so whichever of two changes of a document is first in the stream is first in the log, whoever publishes them. A save
// names the number of the save before it, so of two only one succeeds, and the other sidecar goes on from what that one saved.
// A sidecar that was paused looks whether its life is valid before each call, so that it publishes nothing whose id the log may
// have forgotten but that one call.
//
// # Reading the whole collection
//
// A re-read notes a place in the stream, publishes all documents as they are, in the order of _id, and then follows the stream
// from the noted place. What changed meanwhile comes again behind that, so each document's last event is of its last change. A
// document that is read as newer than a change that follows goes back for a moment. Each word of Config.Reread has one re-read,
// whose progress is saved with the place.
package capture
