// Package projector keeps a MongoDB collection equal to a topic: it has, for each key, the document
// that the key's latest event is mapped to.
//
//	err := projector.Run(ctx, client, projector.Config{
//		Topic: "customers", Group: "customers-view", Collection: db.Collection("customers"),
//		Map: func(e *sluice.Event) (any, error) {
//			var c Customer
//			return c, json.Unmarshal(e.Payload, &c)
//		},
//	})
//
// # Documents
//
// A document has the event's key for its _id, the fields that Map returned, and the guard, which
// says which event it is of:
//
//	{_id: "customer-17", city: "Bern", _sluice: {partition: 3, seq: 1042}}
//
// An event with the payload null deletes, and so does one that Map returns nil for. Its guard stays
// for [Config.KeepDeleted], so that an earlier event that arrives late does not bring the document
// back:
//
//	{_id: "customer-17", _sluice: {partition: 3, seq: 1043, deleted: true, expireAt: Date}}
//
// Readers leave those out with [Live]. Such a document has no field of the application's, so a
// query for one does not find it. A unique index of the application's must be sparse, or partial:
// two documents that lack its field would violate it.
//
// # Order
//
// A document is written only where its guard has a lower seq. The events of a key are in one
// partition for as long as the topic exists in its store, so no redelivery, no second or slow
// process, and no redriven dead letter moves a document back. The write is one replacement of one
// document, which MongoDB makes atomic.
//
// # Events that cannot be projected
//
// An event without a key, and one whose document MongoDB cannot store, goes to the dead letters
// with the reason. So does one that violates a unique index, which is named, once it has been tried
// for ten seconds and once more: the event of another key may free the value meanwhile. While
// MongoDB is away events wait, which counts no attempt.
//
// # Rebuilding
//
// [Rebuild] makes the projection build the collection from scratch, for example after a change of
// Map, once all processes run the new one. The topic is read from its first event into a collection
// beside it, COLLECTION.rebuild-N with the same indexes, by a group of its own, GROUP.rebuild-N,
// which the token must allow. Meanwhile the projection goes on. Then the new collection is renamed
// in place of the old one; around that moment readers may see a document as it was a few events
// before. One process does it and reports the progress to [Observer].Rebuild. If it dies, another
// process goes on. The new collection lacks events that retention has removed from the topic.
// Rights, validators and sharding of the collection do not pass to it; a sharded collection cannot
// be renamed.
//
// The same happens by itself where the collection is of another history than the topic: the topic
// or the group was deleted while no projection ran, the store was restored from a backup, or it is
// another store. The projection recognizes this by the positions that it has projected. It keeps
// them, with the rebuild's state, in [StateCollection].
package projector
